//! Mounts on paths where a root of the sandbox's own already has something: a file, a link, or a link on the way.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{open_directory, output};

/// What runs print when this file is shown at that path.
#[track_caller]
fn shown(root: &[&str], volume: &str, argv: &[&str]) -> String {
    let all: Vec<&str> =
        ["run", "-q", "-w", "/"].iter().chain(root).chain(&["-v", volume, "--"]).chain(argv).copied().collect();
    let out = output(&all);
    assert_eq!(out.status.code(), Some(0), "{all:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_file_is_shown_where_a_minimal_root_has_a_file_or_a_link() {
    let directory = open_directory();
    let file = directory.path().join("file");
    fs::write(&file, "mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let minimal = ["--root", "minimal"];
    // Written by the sandbox; a link or a file of the host's; a name that is nobody's yet.
    for target in ["/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/ld.so.conf", "/etc/mine"] {
        let volume = format!("{}:{target}", file.display());
        assert_eq!(shown(&minimal, &volume, &["/bin/cat", target]), "mine\n", "{target}");
    }
    // Behind a link of the system's (/bin is usr/bin), where the host has that file.
    let volume = format!("{}:/bin/false", file.display());
    assert_eq!(shown(&minimal, &volume, &["/bin/cat", "/usr/bin/false"]), "mine\n");
}

#[test]
fn a_link_is_replaced_and_what_it_leads_to_stays() {
    let link = "/etc/localtime";
    let Ok(leads_to) = fs::canonicalize(link) else {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "this host has no {link}");
        eprintln!("skipped: this host has no {link}");
        return;
    };
    let (text, leads_to) = (fs::read(&leads_to).unwrap(), leads_to.display().to_string());
    let directory = open_directory();
    let file = directory.path().join("file");
    fs::write(&file, "mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let volume = format!("{}:{link}", file.display());
    let size = shown(&["--root", "minimal"], &volume, &["/usr/bin/stat", "-c", "%s", &leads_to]);
    assert_eq!(size.trim(), text.len().to_string());
    // Shown to itself, as profiles of other programs ask for it.
    let volume = format!("{link}:{link}");
    let size = shown(&["--root", "minimal"], &volume, &["/usr/bin/stat", "-L", "-c", "%s", link]);
    assert_eq!(size.trim(), text.len().to_string());
}

#[test]
fn a_directory_takes_the_place_of_a_link_at_the_top() {
    let directory = open_directory();
    fs::write(directory.path().join("name"), "mine\n").unwrap();
    fs::set_permissions(directory.path().join("name"), fs::Permissions::from_mode(0o644)).unwrap();
    let at_sbin = format!("{}:/sbin", directory.path().display());
    assert_eq!(shown(&["--root", "minimal"], &at_sbin, &["/usr/bin/cat", "/sbin/name"]), "mine\n");
    // In the host's view, too, where a new name at the top makes the root one of our own.
    let new = format!("{}:/cofferdam-new", directory.path().display());
    let file = format!("{}:/bin/false", directory.path().join("name").display());
    assert_eq!(shown(&["-v", &new], &file, &["/usr/bin/cat", "/bin/false", "/cofferdam-new/name"]), "mine\nmine\n");
}

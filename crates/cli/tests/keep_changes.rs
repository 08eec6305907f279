//! What `--keep-changes` keeps of a copy-on-write volume, what it does not, and how both are reported.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use common::{PYTHON, code_and_stderr, outcome};
use serde_json::Value;

/// Runs code in a copy-on-write volume that holds `old` and `gone`.
fn run(keep: &Path, code: &str) -> (tempfile::TempDir, Value) {
    run_with(&[], keep, code)
}

fn run_with(more: &[&str], keep: &Path, code: &str) -> (tempfile::TempDir, Value) {
    let tree = common::open_directory();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for name in ["old", "gone"] {
        fs::write(tree.path().join(name), name).unwrap();
        fs::set_permissions(tree.path().join(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let volume = format!("{}:/w:cow", tree.path().to_str().unwrap());
    let keep = keep.to_str().unwrap();
    let options = ["run", "--json", "-v", &volume, "-w", "/w", "--keep-changes", keep];
    let (exit, o) = outcome(&[&options[..], more, &["--", PYTHON, "-c", code]].concat());
    let lost = o["error"]["code"] == 125;
    assert_eq!(exit, if lost { 125 } else { 0 }, "{o:#}");
    (tree, o)
}

fn changes(o: &Value) -> Vec<String> {
    let list = o["changes"].as_array().unwrap();
    list.iter().map(|c| format!("{} {}", c["kind"].as_str().unwrap(), c["path"].as_str().unwrap())).collect()
}

#[test]
fn names_that_are_not_utf8_are_listed_and_said_not_to_be_kept() {
    use std::os::unix::ffi::OsStrExt as _;
    let odd = |name: &'static [u8]| std::ffi::OsStr::from_bytes(name);
    let tree = common::open_directory();
    for name in ["plain", "dir", "whole"] {
        fs::create_dir(tree.path().join(name)).unwrap();
    }
    for name in [&b"changed\xff"[..], b"removed\xff", b"kept\xff", b"dir/below\xfe", b"whole/inner\xfe", b"plain/file"]
    {
        fs::write(tree.path().join(odd(name)), "old").unwrap();
        fs::set_permissions(tree.path().join(odd(name)), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for name in ["", "plain", "dir", "whole"] {
        fs::set_permissions(tree.path().join(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let code = r"
import os, shutil
open(b'changed\xff', 'w').write('new'); os.remove(b'removed\xff'); os.remove(b'dir/below\xfe')
shutil.rmtree('whole'); os.mkdir('whole')
os.makedirs(b'new\xff/sub/in\\\xfe'); open(b'new\xff/sub/file', 'w').close()
os.symlink('x', b'link\xff'); os.mkfifo(b'fifo\xff'); open('plain/added', 'w').close()
";
    let volume = format!("{}:/w:cow", tree.path().to_str().unwrap());
    let place = tempfile::tempdir().unwrap();
    let keep = place.path().join("kept");
    for kept in [&[][..], &["--keep-changes", keep.to_str().unwrap()]] {
        let options = ["run", "--json", "-v", &volume, "-w", "/w"];
        let (_, o) = outcome(&[&options[..], kept, &["--", PYTHON, "-c", code]].concat());
        let expected = [
            r"M /w/changed\xff",
            r"D /w/dir/below\xfe",
            r"A /w/fifo\xff",
            r"A /w/link\xff",
            r"A /w/new\xff",
            r"A /w/new\xff/sub",
            r"A /w/new\xff/sub/file",
            r"A /w/new\xff/sub/in\\\xfe",
            "A /w/plain/added",
            r"D /w/removed\xff",
            "M /w/whole", // its mode is another
            r"D /w/whole/inner\xfe",
        ];
        assert_eq!(changes(&o), expected, "{o:#}");
        assert_eq!(o["changes_omitted"], 0, "{o:#}");
        let said = o["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(said.contains("whose name is not UTF-8"), !kept.is_empty(), "{o:#}");
    }
    assert!(keep.join("plain/added").exists());
    // The control: a name of the same characters that is UTF-8.
    let code = r"open('changed\\xff', 'w').close(); open('é', 'w').close()";
    let (_, o) = outcome(&["run", "--json", "-v", &volume, "-w", "/w", "--", PYTHON, "-c", code]);
    assert_eq!(changes(&o), [r"A /w/changed\xff", "A /w/é"], "{o:#}");
}

#[test]
fn symbolic_links_come_back_as_links_and_nothing_follows_them() {
    let place = tempfile::tempdir().unwrap();
    let (victim, keep) = (place.path().join("victim"), place.path().join("kept"));
    fs::create_dir(&victim).unwrap();
    // A tree like a virtual environment's; a link out of it, and names behind that link.
    let code = format!(
        "import os\n\
         os.makedirs('env/bin'); os.mkdir('env/lib'); os.symlink('lib', 'env/lib64')\n\
         os.symlink('/usr/bin/python3', 'env/bin/python3'); os.symlink('python3', 'env/bin/python')\n\
         open('env/lib/module.py', 'w').write('x'); os.symlink('nowhere', 'dangling')\n\
         os.symlink({:?}, 'out'); os.symlink('old', 'self'); os.remove('gone')\n\
         os.remove('old'); os.symlink('env', 'old')",
        victim.to_str().unwrap()
    );
    let (tree, o) = run(&keep, &code);
    assert_eq!(o["error"], Value::Null, "{o:#}");
    let link = |name: &str| fs::read_link(keep.join(name)).unwrap().to_str().unwrap().to_owned();
    assert_eq!((link("env/lib64"), link("env/bin/python")), ("lib".into(), "python3".into()));
    assert_eq!((link("env/bin/python3"), link("dangling")), ("/usr/bin/python3".into(), "nowhere".into()));
    assert_eq!((link("out"), link("old")), (victim.to_str().unwrap().to_owned(), "env".into()));
    assert_eq!(fs::read_to_string(keep.join("env/lib64/module.py")).unwrap(), "x");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "nothing was written through the link");
    assert_eq!(fs::read_to_string(tree.path().join("old")).unwrap(), "old", "the host's own stays");
    let found = changes(&o);
    for change in ["A /w/env/lib64", "A /w/out", "M /w/old", "D /w/gone"] {
        assert!(found.iter().any(|c| c == change), "{change}: {found:?}");
    }
    assert!(!keep.join("gone").exists(), "a deletion is only in the list of changes");
}

#[test]
fn unkept_files_are_named_and_the_rest_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let keep = place.path().join("kept");
    let code = "import os\nos.mkfifo('one'); os.mkdir('d'); os.mkfifo('d/two'); open('d/file', 'w').write('x')\n\
                os.mknod('three', 0o140600)";
    let (_tree, o) = run(&keep, code);
    let error = &o["error"];
    assert_eq!(error["step"], "cleanup", "{o:#}");
    let message = error["message"].as_str().unwrap();
    for name in ["/w/one (a FIFO)", "/w/d/two (a FIFO)", "/w/three (a socket)"] {
        assert!(message.contains(name), "{name}: {message}");
    }
    assert_eq!(fs::read_to_string(keep.join("d/file")).unwrap(), "x");
    assert_eq!(fs::read_dir(keep.join("d")).unwrap().count(), 1);
    assert!(changes(&o).contains(&"A /w/one".to_owned()));
}

#[test]
fn too_deep_changes_are_counted_and_reported_as_omitted() {
    let short = "for i in range(300): os.mkdir('n'); os.chdir('n')";
    let long = "for i in range(300): os.mkdir('n' * 200); os.chdir('n' * 200)";
    let allowed = "for i in range(250): os.mkdir('n'); os.chdir('n')";
    for (code, whole) in [(short, false), (long, false), (allowed, true)] {
        let place = tempfile::tempdir().unwrap();
        let keep = place.path().join("kept");
        let (_tree, o) = run(&keep, &format!("import os\n{code}\nopen('leaf', 'w').write('x')"));
        let (listed, omitted) = (changes(&o).len(), o["changes_omitted"].as_u64().unwrap());
        if whole {
            assert_eq!((listed, omitted, &o["error"]), (251, 0, &Value::Null), "{o:#}");
            continue;
        }
        assert!(listed <= 257 && omitted > 0, "{listed} {omitted}");
        let message = o["error"]["message"].as_str().unwrap();
        for part in
            ["at least ", "more changes in /w are not listed", "neither listed nor kept", "too deep", "not kept: "]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn unwritable_destination_is_named_and_changes_are_listed() {
    // The program has the place to itself: it puts a directory where a file is to be kept, or a file where the directory was.
    for (code, wanted) in [
        ("os.mkdir('/k/kept/new')", "cannot make the file KEEP/new: "),
        ("os.rmdir('/k/kept'); open('/k/kept', 'w')", "the changes are lost: the program removed KEEP,"),
    ] {
        let place = common::open_directory();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let keep = place.path().join("kept");
        let volume = format!("{}:/k:rw", place.path().to_str().unwrap());
        let code = format!("import os\nopen('new', 'w').write('x'); os.remove('gone'); os.mkfifo('fifo')\n{code}");
        let (_tree, o) = run_with(&["-v", &volume], &keep, &code);
        let message = o["error"]["message"].as_str().unwrap();
        let wanted = wanted.replace("KEEP", keep.to_str().unwrap());
        assert!(message.contains(&wanted) && !message.contains("cannot read"), "{message}");
        assert_eq!(changes(&o), ["A /w/fifo", "D /w/gone", "A /w/new"]);
    }
    let place = tempfile::tempdir().unwrap();
    let (_tree, o) = run(&place.path().join("kept"), "open('new', 'w').write('x')");
    assert_eq!((&o["error"], changes(&o)), (&Value::Null, vec!["A /w/new".to_owned()]), "{o:#}");
}

#[test]
fn what_takes_the_place_of_another_kind_is_a_modification() {
    let tree = common::open_directory();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for directory in ["mode", "same", "to-file"] {
        fs::create_dir(tree.path().join(directory)).unwrap();
        fs::set_permissions(tree.path().join(directory), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for file in ["to-directory", "to-fifo", "same/kept"] {
        fs::write(tree.path().join(file), "x").unwrap();
    }
    let work = format!("{}:/w:cow", tree.path().to_str().unwrap());
    let code = "
import os
os.chdir('/w')
os.remove('to-directory'); os.mkdir('to-directory')
os.remove('to-fifo'); os.mkfifo('to-fifo')
os.rmdir('to-file'); open('to-file', 'w')
os.chmod('mode', 0o700)
open('same/new', 'w'); os.mkdir('new'); os.mkfifo('fifo')";
    let (exit, o) = outcome(&["run", "--json", "-v", &work, "--", PYTHON, "-c", code]);
    assert_eq!(exit, 0, "{}", o["stderr"]);
    let wanted =
        ["A /w/fifo", "M /w/mode", "A /w/new", "A /w/same/new", "M /w/to-directory", "M /w/to-fifo", "M /w/to-file"];
    assert_eq!(changes(&o), wanted, "{}", o["stderr"]);
}

#[test]
fn changes_that_cannot_all_be_kept_are_no_success() {
    for (code, lost) in [("open('/k/kept/new', 'w').write('planted')", true), ("pass", false)] {
        let place = common::open_directory();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let keep = place.path().join("kept");
        fs::create_dir(&keep).unwrap();
        fs::set_permissions(&keep, fs::Permissions::from_mode(0o777)).unwrap();
        let volume = format!("{}:/k:rw", place.path().to_str().unwrap());
        let tree = common::open_directory();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let work = format!("{}:/w:cow", tree.path().to_str().unwrap());
        let code = format!("open('/w/new', 'w').write('x'); {code}");
        let options = ["-v", &volume, "-v", &work, "--keep-changes", keep.to_str().unwrap(), "--", PYTHON, "-c", &code];
        let (exit, o) = outcome(&[&["run", "--json"], &options[..]].concat());
        assert_eq!(
            (exit, &o["success"], &o["exit_code"]),
            (if lost { 125 } else { 0 }, &(!lost).into(), &0.into()),
            "{o:#}"
        );
        fs::remove_file(keep.join("new")).unwrap();
        let (exit, text) = code_and_stderr(&[&["run", "-q"], &options[..]].concat());
        let kept = fs::read_to_string(keep.join("new")).unwrap();
        if lost {
            assert_eq!(o["error"]["step"], "keep_changes");
            assert!(
                exit == 125 && text.contains("not all changes in /w are kept in") && text.contains("hint: "),
                "{text}"
            );
            assert!(!text.contains("kept in /proc") && kept == "planted", "{text}");
        } else {
            assert_eq!((exit, text.as_str(), kept.as_str()), (0, "", "x"));
        }
    }
}

#[test]
fn list_of_changes_is_limited_in_bytes_and_the_rest_counted() {
    // Long paths, so that fewer files are more than the bound: three directories, and files in the innermost.
    let code = |files: u64| {
        format!(
            "import os\nfor i in range(3): os.mkdir('d' * 250); os.chdir('d' * 250)\n\
             for i in range({files}): open('%05d' % i + 'n' * 245, 'w').close()"
        )
    };
    for (files, whole) in [(100, true), (6000, false)] {
        let tree = common::open_directory();
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let volume = format!("{}:/w:cow", tree.path().to_str().unwrap());
        let options = ["run", "--json", "-v", &volume, "-w", "/w", "--", PYTHON, "-c", &code(files)];
        let (exit, o) = outcome(&options);
        assert_eq!((exit, &o["success"]), (0, &true.into()), "{}", o["stderr"]);
        let (listed, omitted) = (changes(&o).len() as u64, o["changes_omitted"].as_u64().unwrap());
        assert_eq!(listed + omitted, files + 3);
        let bytes = o["changes"].to_string().len();
        if whole {
            assert_eq!((omitted, &o["error"]), (0, &Value::Null));
            continue;
        }
        assert!(omitted > 0 && bytes <= 4 << 20, "{omitted} are left out, the list has {bytes} bytes");
        assert!(bytes > 3 << 20, "the list has {bytes} bytes");
        let message = o["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("{omitted} more changes in /w are not listed")), "{message}");
    }
}

#[test]
fn without_json_the_same_is_reported_as_notes() {
    let tree = common::open_directory();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let volume = format!("{}:/w:cow", tree.path().to_str().unwrap());
    let place = tempfile::tempdir().unwrap();
    let keep = place.path().join("kept");
    let options = ["run", "-v", &volume, "-w", "/w", "--keep-changes", keep.to_str().unwrap(), "--"];
    let (code, text) = code_and_stderr(&[&options[..], &["sh", "-c", "mkfifo pipe; echo x > file"]].concat());
    assert!(code == 0 && text.contains("/w/pipe (a FIFO)"), "{text}");
    assert_eq!(fs::read_to_string(keep.join("file")).unwrap(), "x\n");
}

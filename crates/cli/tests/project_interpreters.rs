//! What the interpreters and version files of a project show to code: nothing that the project could have written decides
//! what of the host is shown.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use common::{PYTHON, cofferdam, open_directory};

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// A home with a key that nothing but the view keeps away, and a project in it.
fn home_with_a_key() -> tempfile::TempDir {
    let home = open_directory();
    fs::create_dir_all(home.path().join(".ssh")).unwrap();
    fs::write(home.path().join(".ssh/id_rsa"), "SSHKEY").unwrap();
    fs::create_dir_all(home.path().join("project/.venv")).unwrap();
    home
}

/// Runs `eval python` in the project of that home, its venv first on PATH, and answers with all that it said.
fn eval_in_project(home: &Path, first: &str, code: &str) -> String {
    let mut command = cofferdam();
    command.env("HOME", home).env("PATH", format!("{first}:/usr/bin:/bin")).current_dir(home.join("project"));
    for variable in ["PYENV_ROOT", "PYENV_VERSION", "ASDF_DATA_DIR", "VIRTUAL_ENV"] {
        command.env_remove(variable);
    }
    let out = command.args(["eval", "-q", "python", code]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

const READS: &str = "
import sys
for path in sys.argv[1:]:
    try: print(open(path).read())
    except OSError as e: print('refused')
print('ran')
";

/// Code that reads each path and says that it ran.
fn reading(paths: &[String]) -> String {
    READS.replace("sys.argv[1:]", &format!("{paths:?}"))
}

fn venv(at: &Path) {
    let made = Command::new(PYTHON).args(["-m", "venv", "--without-pip", path(at)]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn project_venv_that_links_elsewhere_shows_nothing_there() {
    let home = home_with_a_key();
    let project = home.path().join("project");
    let (at, key) = (project.join(".venv"), home.path().join(".ssh/id_rsa"));
    let first = format!("{}/bin", path(&at));
    let through = format!("{}{}", path(&at), path(&key));
    let code = reading(&[through, path(&key).to_owned(), format!("{}/.ssh/id_rsa", path(&at))]);
    // The link that code with a writable project, or the repository itself, can leave there.
    for target in ["/", path(home.path())] {
        fs::remove_dir_all(&at).or_else(|_| fs::remove_file(&at)).unwrap();
        symlink(target, &at).unwrap();
        fs::write(home.path().join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        assert_eq!(eval_in_project(home.path(), &first, &code), "refused\nrefused\nrefused\nran\n");
    }
    // The same behind `home` of a venv.
    fs::remove_file(&at).unwrap();
    fs::create_dir_all(at.join("bin")).unwrap();
    symlink(PYTHON, at.join("bin/python3")).unwrap();
    for target in ["/", path(home.path())] {
        let link = project.join("lnk");
        fs::remove_file(&link).ok();
        symlink(target, &link).unwrap();
        fs::write(at.join("pyvenv.cfg"), format!("home = {}/bin\n", path(&link))).unwrap();
        let through = format!("{}{}", path(&link), path(&key));
        let code = reading(&[through, format!("{}/.ssh/id_rsa", path(&link)), path(&key).to_owned()]);
        assert_eq!(eval_in_project(home.path(), &first, &code), "refused\nrefused\nrefused\nran\n");
    }
    // Control: a venv, and a linked one, bring their packages.
    fs::remove_dir_all(&at).unwrap();
    let elsewhere = home.path().join("venvs/p");
    for (made, link) in [(at.clone(), None), (elsewhere.clone(), Some(&elsewhere))] {
        if let Some(target) = link {
            fs::remove_dir_all(&at).unwrap();
            symlink(target, &at).unwrap();
        }
        venv(&made);
        let libraries = fs::read_dir(made.join("lib")).unwrap().flatten().next().unwrap().path();
        fs::write(libraries.join("site-packages/brought.py"), "VALUE = 'brought'\n").unwrap();
        let code = format!("import brought; print(brought.VALUE)\n{}", reading(&[path(&key).to_owned()]));
        assert_eq!(eval_in_project(home.path(), &first, &code), "brought\nrefused\nran\n");
    }
}

#[test]
fn a_tool_versions_file_of_a_project_shows_nothing_of_the_host() {
    let home = home_with_a_key();
    let project = home.path().join("project");
    let key = home.path().join(".ssh/id_rsa");
    let shims = home.path().join(".asdf/shims");
    fs::create_dir_all(&shims).unwrap();
    fs::write(shims.join("python3"), "#!/usr/bin/env bash\nexec asdf exec \"python3\" \"$@\"\n").unwrap();
    fs::set_permissions(shims.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    let evil = project.join("evil");
    symlink("/", &evil).unwrap();
    fs::write(project.join(".tool-versions"), format!("python {}\n", path(&evil))).unwrap();
    let code = reading(&[format!("{}{}", path(&evil), path(&key)), path(&key).to_owned()]);
    assert_eq!(eval_in_project(home.path(), path(&shims), &code), "refused\nrefused\nran\n");
    // Control: an installed version brings its library.
    let installed = home.path().join(".asdf/installs/python/3.11.7");
    venv(&installed);
    fs::write(project.join(".tool-versions"), "python 3.11.7\n").unwrap();
    let code = format!("import sys; print(sys.prefix)\n{}", reading(&[path(&key).to_owned()]));
    let expected = format!("{}\nrefused\nran\n", path(&installed));
    assert_eq!(eval_in_project(home.path(), path(&shims), &code), expected);
}

#[test]
fn venv_is_shown_without_credentials() {
    // Credentials in a project that is a venv itself: the caller's homes, and the files that are named in them.
    let home = home_with_a_key();
    let project = home.path().join("project");
    fs::remove_dir(project.join(".venv")).unwrap();
    venv(&project);
    fs::write(project.join("open"), "shown").unwrap();
    symlink(home.path().join(".ssh"), project.join("keys")).unwrap();
    let code = reading(&[path(&project.join("open")).to_owned(), path(&project.join("keys/id_rsa")).to_owned()]);
    let first = format!("{}/bin", path(&project));
    assert_eq!(eval_in_project(home.path(), &first, &code), "shown\nrefused\nran\n");
}

#[test]
fn programs_of_a_project_on_path_are_not_started_outside() {
    let home = home_with_a_key();
    let project = home.path().join("project");
    // Each leaves a mark where it is started on the host; a sandbox shows it no place for one.
    let plant = |directory: &Path, marks: &Path| {
        fs::create_dir_all(directory).unwrap();
        for tool in ["bwrap", "nsjail", "crun", "runc", "runsc", "youki", "podman", "docker", "nix"] {
            let text = format!("#!/bin/sh\necho $0 >>{}\nexit 1\n", path(marks));
            fs::write(directory.join(tool), text).unwrap();
            fs::set_permissions(directory.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
        }
    };
    let marks = home.path().join("marks");
    let started = |directory: &Path, cwd: &Path, arguments: &[&str]| {
        fs::write(&marks, "").unwrap();
        let mut command = cofferdam();
        for variable in ["COFFERDAM_BWRAP", "COFFERDAM_NSJAIL", "COFFERDAM_CRUN", "COFFERDAM_RUNC", "COFFERDAM_RUNSC"] {
            command.env_remove(variable);
        }
        command.env("HOME", home.path()).env("PATH", format!("{}:/usr/bin:/bin", path(directory))).current_dir(cwd);
        command.args(arguments).output().unwrap();
        fs::read_to_string(&marks).unwrap().lines().count()
    };
    let of_the_project = project.join(".venv/bin");
    plant(&of_the_project, &marks);
    let runs = [
        &["doctor"][..],
        &["run", "--backend", "bubblewrap", "--", "true"],
        &["run", "--backend", "oci:crun", "--root", "/", "--", "true"],
        &["run", "--backend", "podman", "--image", "none", "--", "true"],
        &["eval", "github:o/r#x", "x"],
    ];
    for arguments in runs {
        for cwd in [&project, home.path()] {
            assert_eq!(started(&of_the_project, cwd, arguments), 0, "{arguments:?}");
        }
    }
    // Where a user installs programs they are the user's, unless it is what is worked on.
    let installed = home.path().join(".local/bin");
    plant(&installed, &marks);
    for arguments in &runs[..2] {
        assert!(started(&installed, &project, arguments) > 0, "{arguments:?}");
        assert_eq!(started(&installed, &installed, arguments), 0, "{arguments:?}");
    }
}

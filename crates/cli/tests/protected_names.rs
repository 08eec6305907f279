//! Every name of the built-in list, as a file, as a directory and missing: a program cannot change, create, replace or remove
//! it in a writable volume, and can do so with an ordinary name. Without the list, the same program changes all of them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::{PROTECTED_COMPANIONS, PROTECTED_DEFAULT};
use common::{PYTHON, cofferdam, open_directory};

/// What the files say at first.
const ORIGINAL: &str = "original";

/// Tries each operation on each name, and the same on an ordinary name beside it.
const PROGRAM: &str = "
import json, os, shutil, sys
def attempt(f, *a):
    try: f(*a)
    except OSError: pass
def write(path):
    with open(path, 'w') as f: f.write('changed')
def replace(path):
    write(path + '.new')
    os.rename(path + '.new', path)
def plant(path):
    os.mkdir(path)
    write(path + '/planted')
def link(path):
    write(path + '.target')
    os.symlink(os.path.basename(path) + '.target', path)
for name in json.loads(sys.argv[1]):
    for volume in '/files', '/directories', '/missing':
        path = f'{volume}/{name}'
        attempt(os.makedirs, os.path.dirname(path))
        for path in path, path + '.ordinary':
            inside = path + '/inner', path + '/planted'
            for f in write, replace, os.unlink, link, os.unlink, os.rmdir, plant: attempt(f, path)
            for f in write, os.unlink: attempt(f, inside[0])
            attempt(write, inside[1])
            attempt(os.rename, path, path + '.away')
            attempt(write, path)
";

struct Volumes {
    _place: tempfile::TempDir,
    files: PathBuf,
    directories: PathBuf,
    missing: PathBuf,
}

impl Volumes {
    fn new(names: &[&str]) -> Volumes {
        let place = open_directory();
        let volume = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (files, directories, missing) = (volume("files"), volume("directories"), volume("missing"));
        for name in names {
            fs::create_dir_all(files.join(name).parent().unwrap()).unwrap();
            fs::write(files.join(name), ORIGINAL).unwrap();
            fs::create_dir_all(directories.join(name)).unwrap();
            fs::write(directories.join(name).join("inner"), ORIGINAL).unwrap();
        }
        Volumes { _place: place, files, directories, missing }
    }

    /// Runs the program on these names with every volume writable.
    fn attack(&self, policy: &Path, names: &[&str]) {
        let mut command = cofferdam();
        command.args(["run", "-q", "--policy"]).arg(policy);
        for (path, inside) in
            [(&self.files, "/files"), (&self.directories, "/directories"), (&self.missing, "/missing")]
        {
            command.arg("-v").arg(format!("{}:{inside}:rw", path.display()));
        }
        let output =
            command.args(["--", PYTHON, "-c", PROGRAM, &serde_json::to_string(names).unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn policy(at: &Path, filesystem: &str) -> PathBuf {
    let file = at.join("policy.json");
    fs::write(&file, format!("{{\"version\": 1, \"filesystem\": {{\"root\": \"host\"{filesystem}}}}}")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    file
}

fn says(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| format!("({e})"))
}

/// The name is as it was as a file and as a directory.
fn unchanged(volumes: &Volumes, name: &str) -> bool {
    let directory = volumes.directories.join(name);
    let entries: Vec<_> =
        fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    says(&volumes.files.join(name)) == ORIGINAL && entries == ["inner"] && says(&directory.join("inner")) == ORIGINAL
}

fn changed(path: &Path) -> bool {
    says(path) == "changed"
}

#[test]
fn no_protected_name_can_be_changed_created_or_removed() {
    let companions: Vec<&str> = PROTECTED_COMPANIONS.iter().map(|(_, name)| *name).collect();
    let existing: Vec<&str> = PROTECTED_DEFAULT.iter().chain(&companions).copied().collect();
    assert!(existing.len() > 250, "{}", existing.len());
    let place = open_directory();
    let (all, none) = (Volumes::new(&existing), Volumes::new(&existing));

    all.attack(&policy(place.path(), ""), &existing);
    let bad: Vec<_> = existing.iter().filter(|name| !unchanged(&all, name)).collect();
    assert!(bad.is_empty(), "changed: {bad:?}");
    let made: Vec<_> =
        PROTECTED_DEFAULT.iter().filter(|name| fs::symlink_metadata(all.missing.join(name)).is_ok()).collect();
    assert!(made.is_empty(), "created: {made:?}");
    for name in &existing {
        let ordinary = format!("{name}.ordinary");
        // The program cannot make a directory that leads to a protected name.
        let below = name.contains('/').then_some(&all.missing);
        for volume in [&all.files, &all.directories, &all.missing].into_iter().filter(|volume| Some(*volume) != below) {
            assert!(changed(&volume.join(&ordinary)), "{ordinary} in {}", volume.display());
        }
    }

    none.attack(&policy(place.path(), ", \"protected\": []"), &existing);
    let same: Vec<_> = existing.iter().filter(|name| unchanged(&none, name)).collect();
    assert!(same.is_empty(), "unchanged without the list, which proves nothing: {same:?}");
    for name in &existing {
        assert!(changed(&none.files.join(name)) && changed(&none.missing.join(name)), "{name}");
        assert!(!none.directories.join(name).join("inner").exists(), "{name}");
    }
}

/// What tools run or obey in a project, by name: that one of these is missing in the built-in list is a mistake, which a
/// test of all names of that list cannot find.
const OBEYED: &[&str] = &[
    "$irbrc",
    ".Xclients",
    ".Xclients-default",
    ".Xsession",
    ".abbrev_defs",
    ".alacritty.toml",
    ".alacritty.yml",
    ".arcrc",
    ".autoenv.zsh.zwc",
    ".bash_aliases.zwc",
    ".bash_completion",
    ".bash_completion.zwc",
    ".bash_profile.zwc",
    ".bashrc.zwc",
    ".bazelrc",
    ".buckconfig.d",
    ".bunfig.toml",
    ".cargo/env.zwc",
    ".clinerules",
    ".clinerules-architect",
    ".clinerules-ask",
    ".clinerules-code",
    ".clinerules-debug",
    ".config/act",
    ".config/alsa",
    ".config/erlang",
    ".config/fossil.db",
    ".config/fossil.db-journal",
    ".config/fossil.db-shm",
    ".config/fossil.db-wal",
    ".config/gnuplot",
    ".config/hk.pkl",
    ".config/irb",
    ".config/jesseduffield",
    ".config/lefthook-local.jsonc",
    ".config/lefthook.jsonc",
    ".config/miserc.toml",
    ".config/nano",
    ".config/ocaml",
    ".config/octave",
    ".config/opentofu",
    ".config/pijul",
    ".config/procps",
    ".config/pry",
    ".config/sapling",
    ".config/utop",
    ".config/wget",
    ".continue",
    ".cshdirs",
    ".ctags",
    ".cvsrc",
    ".darcs",
    ".dir-locals.el",
    ".editrc",
    ".elvish",
    ".emacs.desktop",
    ".emacs.el",
    ".emacs.el.gz",
    ".emacs.elc",
    ".emacs.elc.gz",
    ".emacs.gz",
    ".emacs.so",
    ".envrc",
    ".fos-journal",
    ".fos-shm",
    ".fos-wal",
    ".fossil",
    ".fossil-journal",
    ".fossil-shm",
    ".fossil-wal",
    ".fslckout-journal",
    ".fslckout-shm",
    ".fslckout-wal",
    ".gclient",
    ".gclient_entries",
    ".git/arc/config",
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/lazygit.yml",
    ".git/safe",
    ".git/sl/config",
    ".git/sl/hgrc-not-shared",
    ".git/sl/requires",
    ".git/sl/sharedpath",
    ".githooks",
    ".github/workflows",
    ".gitk",
    ".gnus",
    ".gnus.el",
    ".gnus.elc",
    ".hg/hgrc",
    ".hg/hgrc-not-shared",
    ".hg/requires",
    ".hg/sharedpath",
    ".husky",
    ".i3",
    ".idea",
    ".ideavimrc",
    ".jdbrc",
    ".jjconfig.toml",
    ".k5login",
    ".k5users",
    ".kiro",
    ".kshrc.zwc",
    ".lazygit.yml",
    ".lefthook-local.jsonc",
    ".lftp",
    ".lldbinit-Xcode",
    ".lldbinit-lldb",
    ".lldbinit-lldb-dap",
    ".lldbinit-lldb-vscode",
    ".local-overcommit.yml",
    ".local/share/fish/generated_completions",
    ".local/share/fish/vendor_completions.d",
    ".local/share/fish/vendor_conf.d",
    ".local/share/fish/vendor_functions.d",
    ".logout",
    ".mailrc",
    ".mcp.json",
    ".mise",
    ".mise.toml",
    ".miserc.toml",
    ".monotone",
    ".msmtprc",
    ".mvn",
    ".neomutt",
    ".neomuttrc",
    ".nvm/bash_completion",
    ".nvm/bash_completion.zwc",
    ".nvm/nvm.sh",
    ".nvm/nvm.sh.zwc",
    ".opencode",
    ".opencode.json",
    ".p10k.zsh.zwc",
    ".p4enviro",
    ".pdbrc.py",
    ".pijul/config",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".profile.zwc",
    ".psqlrc-10",
    ".psqlrc-11",
    ".psqlrc-12",
    ".psqlrc-13",
    ".psqlrc-14",
    ".psqlrc-15",
    ".psqlrc-16",
    ".psqlrc-17",
    ".psqlrc-18",
    ".psqlrc-19",
    ".psqlrc-20",
    ".psqlrc-9.6",
    ".rdbgrc.rb",
    ".repo/repo",
    ".repoconfig",
    ".rhosts",
    ".roo",
    ".roorules",
    ".roorules-architect",
    ".roorules-ask",
    ".roorules-code",
    ".roorules-debug",
    ".shosts",
    ".sl/config",
    ".spacemacs.el",
    ".spacemacs.elc",
    ".spacemacs.env",
    ".subversion",
    ".svn",
    ".sway",
    ".tmux",
    ".tmux.conf.local",
    ".tmuxinator.yaml",
    ".tofurc",
    ".tool-versions",
    ".toprc",
    ".vscode",
    ".vscode-insiders",
    ".vscode-server-insiders",
    ".wget2rc",
    ".wishrc",
    ".woodpecker.yaml",
    ".xinputrc",
    ".yarn/plugins",
    ".yarn/releases",
    ".yarnrc.yml",
    ".zcompdump.zwc",
    ".zlogin.zwc",
    ".zlogout.zwc",
    ".zprofile.zwc",
    ".zsh.zwc",
    ".zshenv.zwc",
    ".zshrc.zwc",
    "AGENTS.md",
    "CLAUDE.md",
    "HEAD",
    "_FOSSIL_-journal",
    "_FOSSIL_-shm",
    "_FOSSIL_-wal",
    "_MTN/monotonerc",
    "_darcs/prefs",
    "_exrc",
    "_gvimrc",
    "_irbrc",
    "_vimrc",
    "grumphp.yaml",
    "grumphp.yaml.dist",
    "hk.json",
    "hk.local.pkl",
    "hk.toml",
    "hk.yaml",
    "hk.yml",
    "irb.rc",
    "lefthook-local.jsonc",
    "mise.toml",
    "opencode.json",
    "rust-toolchain",
    "rust-toolchain.toml",
];

#[test]
fn what_tools_run_or_obey_in_a_project_is_kept_by_name() {
    let place = open_directory();
    let volumes = Volumes::new(OBEYED);
    volumes.attack(&policy(place.path(), ""), OBEYED);
    let bad: Vec<_> = OBEYED.iter().filter(|name| !unchanged(&volumes, name)).collect();
    assert!(bad.is_empty(), "changed: {bad:?}");
    // The companion of a protected file may be made where it is missing.
    let companion = |name: &str| PROTECTED_COMPANIONS.iter().any(|(_, companion)| *companion == name);
    let is_made = |name: &&&str| fs::symlink_metadata(volumes.missing.join(name)).is_ok();
    let made: Vec<_> = OBEYED.iter().filter(|name| !companion(name)).filter(is_made).collect();
    assert!(made.is_empty(), "created: {made:?}");
    for name in OBEYED {
        let ordinary = format!("{name}.ordinary");
        assert!(changed(&volumes.files.join(&ordinary)), "the control: {ordinary}");
    }
}

#[test]
fn the_names_hold_in_the_callers_home_below_a_volume() {
    let place = open_directory();
    let at = fs::canonicalize(place.path()).unwrap();
    let (home, other) = (at.join("homes/me"), at.join("homes/other"));
    for directory in [&home, &other] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(".bashrc"), ORIGINAL).unwrap();
    }
    let script = "cd /homes; for home in me other; do for name in .bashrc .zshrc notes; do echo planted > $home/$name; done; done";
    let run = |volume: &Path, script: &str| {
        let mut command = cofferdam();
        command.env("HOME", &home).args(["run", "-q", "-v"]).arg(format!("{}:/homes:rw", volume.display()));
        command.args(["--", "sh", "-c", script]).output().unwrap()
    };
    let output = run(&at.join("homes"), script);
    assert!(says(&home.join("notes")).starts_with("planted"), "the control: {output:?}");
    assert_eq!(says(&home.join(".bashrc")), ORIGINAL, "{output:?}");
    assert!(!home.join(".zshrc").exists(), "{output:?}");
    // Another user's is not known, as the documentation says.
    assert!(says(&other.join(".zshrc")).starts_with("planted"), "{output:?}");
    // Two directories above it as well.
    run(&at, "echo planted > /homes/homes/me/.profile; echo planted > /homes/homes/me/.profile.ordinary");
    assert!(!home.join(".profile").exists() && home.join(".profile.ordinary").exists());
}

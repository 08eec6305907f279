//! Regression tests of escapes: each test is an attack that once worked, beside the same thing where it is allowed.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use common::{PYTHON, cofferdam, is_root, open_directory, output};

/// A directory that the sandbox may write to: as root its owner is mapped, so anybody's will do.
fn writable() -> tempfile::TempDir {
    open_directory()
}

#[track_caller]
fn python(arguments: &[&str], code: &str) -> String {
    let all: Vec<&str> = ["run", "-q"].iter().chain(arguments).chain(&["--", PYTHON, "-c", code]).copied().collect();
    let out = output(&all);
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

#[test]
fn init_opens_for_the_program_only_what_the_program_could_open() {
    let (tree, host) = (writable(), open_directory());
    let fifo = host.path().join("fifo");
    assert!(Command::new("mkfifo").args(["-m", "666", path(&fifo)]).status().unwrap().success());
    let code = "
import os
def attempt(path, flags):
    try: os.open(path, flags | os.O_NONBLOCK, 0o600); return 'opened'
    except OSError as e: return os.strerror(e.errno)
C = os.O_CREAT
print(attempt('/w/new', os.O_RDWR | C), attempt('/w/.bashrc', os.O_RDWR | C))
print(attempt('/proc/self/maps', os.O_RDONLY), attempt('/proc/self/maps', os.O_RDONLY | C))
print(attempt('/proc/1/maps', os.O_RDONLY | C))
print(attempt('/host/fifo', os.O_RDWR), attempt('/host/fifo', os.O_RDWR | C))
os.mkfifo('/w/fifo')
print(attempt('/w/fifo', os.O_RDWR | C), attempt('/dev/null', os.O_RDWR | C))
import socket
for name in 'new-socket', '.vimrc':
    try: socket.socketpair()[0].bind('/w/' + name); print('bound')
    except OSError as e: print(os.strerror(e.errno))
";
    let (w, h) = (format!("{}:/w:rw", path(tree.path())), format!("{}:/host", path(host.path())));
    assert_eq!(
        python(&["-v", &w, "-v", &h], code),
        "opened Permission denied\nopened Permission denied\nPermission denied\n\
         Permission denied Permission denied\nopened opened\nbound\nPermission denied\n"
    );
}

#[test]
fn ancestors_of_a_protected_path_cannot_be_replaced() {
    let tree = writable();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir_all(at("dot/fish")).unwrap();
    symlink("by-way", at(".config")).unwrap();
    symlink("dot", at("by-way")).unwrap();
    fs::write(at("rc"), "mine").unwrap();
    symlink("rc", at(".bashrc")).unwrap();
    symlink("rc", at("other")).unwrap();
    symlink("astray/profile", at(".profile")).unwrap();
    fs::write(at(".git"), "gitdir: /elsewhere").unwrap();
    let code = "
import os
def attempt(f, *a):
    try: f(*a); return 'done'
    except OSError as e: return os.strerror(e.errno)
print(attempt(os.unlink, '/w/other'), attempt(os.unlink, '/w/absent'), attempt(os.unlink, '/w/.npmrc'))
for link in '.config', 'by-way', '.bashrc':
    print(attempt(os.unlink, '/w/' + link), attempt(os.rename, '/w/' + link, '/w/x'))
print(attempt(os.open, '/w/.git', os.O_WRONLY | os.O_TRUNC), attempt(os.unlink, '/w/.git'))
print(attempt(os.mkdir, '/w/astray'), attempt(os.mkdir, '/w/elsewhere'))
print(attempt(os.open, '/w/rc', os.O_WRONLY), attempt(os.mkdir, '/w/dot/fish/x'), attempt(os.mkdir, '/w/dot/x'))
";
    let message = python(&["-v", &format!("{}:/w:rw", path(tree.path()))], code);
    let no = "Permission denied Permission denied\n";
    assert_eq!(
        message,
        format!(
            "done No such file or directory No such file or directory\n{no}{no}{no}\
             Read-only file system Device or resource busy\n\
             Permission denied done\n\
             Read-only file system Read-only file system done\n"
        )
    );
    assert_eq!(fs::read_to_string(at(".git")).unwrap(), "gitdir: /elsewhere");
}

#[test]
fn opening_an_unsearchable_directory_uncovers_nothing() {
    let tree = writable();
    let closed = tree.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("secret"), "secret").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let code = "
import os
try:
    os.chmod('/w/closed', 0o700)
    print(open('/w/closed/secret').read())
except OSError as e: print('held')
";
    let message =
        python(&["-v", &format!("{}:/w:rw", path(tree.path())), "--deny", path(&closed.join("secret"))], code);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(message, "held\n");
}

#[test]
fn path_shown_again_by_a_bind_mount_is_protected_too() {
    let tree = open_directory();
    let (one, two) = (tree.path().join("one"), tree.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    fs::write(one.join("secret"), "secret").unwrap();
    fs::write(one.join("open"), "open").unwrap();
    let script = format!(
        "mount --bind {one} {two} && exec {cofferdam} run -q --root host -v {tree}:{tree} --deny {one}/secret -- \
         /bin/sh -c 'cat {two}/open {one}/secret {two}/secret; test -e {two}/secret'",
        one = path(&one),
        two = path(&two),
        tree = path(tree.path()),
        cofferdam = cofferdam().get_program().to_str().unwrap(),
    );
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-Urm"] };
    let out = Command::new("unshare").args(flags).args(["/bin/sh", "-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    if !is_root() && String::from_utf8_lossy(&out.stdout).is_empty() {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || message.contains("maps no id"), "{message}");
        eprintln!("skipped: a mount needs user 0 here: {message}");
        return;
    }
    assert_eq!(String::from_utf8_lossy(&out.stdout), "open", "{message}");
}

#[test]
fn the_names_hold_in_a_home_below_another_name_of_its_parent() {
    let tree = open_directory();
    let home = tree.path().join("homes/me");
    fs::create_dir_all(&home).unwrap();
    fs::create_dir(tree.path().join("other")).unwrap();
    for directory in [home.parent().unwrap(), &home] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let planted = "for name in .zshrc .config/fish/config.fish notes; do mkdir -p me/$(dirname $name); \
        echo planted > me/$name && echo $name; done; true";
    for (named, place) in [("by its own name", "homes"), ("by another", "other")] {
        let script = format!(
            "cd {tree} && mount --bind homes other && cd {place} && \
             HOME={home} XDG_STATE_HOME={tree}/state exec {cofferdam} run -q -v .:.:rw -- /bin/sh -c '{planted}'",
            tree = path(tree.path()),
            home = path(&home),
            cofferdam = cofferdam().get_program().to_str().unwrap(),
        );
        let Some((text, message)) = among_mounts(&script) else { return };
        assert_eq!(text, "notes\n", "{named}: {message}");
        fs::remove_file(home.join("notes")).unwrap();
    }
}

/// What a script prints that runs in a mount namespace of its own. `None` where this user cannot mount there.
fn among_mounts(script: &str) -> Option<(String, String)> {
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-Urm"] };
    let out = Command::new("unshare").args(flags).args(["/bin/sh", "-c", script]).output().unwrap();
    let (text, message) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr).into_owned());
    if !is_root() && text.is_empty() {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || message.contains("maps no id"), "{message}");
        eprintln!("skipped: a mount needs user 0 here: {message}");
        return None;
    }
    Some((text.into_owned(), message))
}

#[test]
fn a_denied_path_is_denied_in_overlays_and_in_their_layers() {
    let tree = open_directory();
    let at = path(tree.path());
    for dir in ["low/home/keys", "up", "work", "m", "view"] {
        fs::create_dir_all(tree.path().join(dir)).unwrap();
    }
    for (file, text) in [("keys/id", "secret"), ("open", "open")] {
        fs::write(tree.path().join("low/home").join(file), text).unwrap();
    }
    let mount = format!(
        "cd {at} && mount -t overlay o -o lowerdir={at}/low,upperdir={at}/up,workdir={at}/work,userxattr m && \
         mount --bind low view && echo new > m/home/keys/new && cp m/home/open m/home/there && exec {} run -q",
        cofferdam().get_program().to_str().unwrap()
    );
    let read = "for place in low m up view; do for file in keys/id keys/new open there; do \
                cat {at}/$place/home/$file 2>&1 | sed \"s#^cat: {at}/##\"; done; done"
        .replace("{at}", at);
    let read_only = format!("-v {at}:{at}");
    for (by, best_effort) in
        [("jail", ""), ("bubblewrap", "--best-effort=filesystem.root,filesystem.mounts,filesystem.deny")]
    {
        if by == "bubblewrap" && !common::needs_bubblewrap() {
            continue;
        }
        for denied in ["low/home/keys", "m/home/keys"] {
            let script =
                format!("{mount} --backend {by} {best_effort} {read_only} --deny {at}/{denied} -- /bin/sh -c '{read}'");
            let Some((text, message)) = among_mounts(&script) else { return };
            assert!(!text.contains("secret") && !text.contains("new\n"), "{by} {denied}: {text} {message}");
            // Beside it: in the lower layer, through the overlay and its bind mount; what was copied up in the upper one.
            assert_eq!(
                text.matches("open").count() - text.matches("/open:").count(),
                5,
                "{by} {denied}: {text} {message}"
            );
        }
        let script = format!("{mount} --backend {by} {best_effort} {read_only} -- /bin/sh -c '{read}'");
        let (text, message) = among_mounts(&script).unwrap();
        assert!(text.matches("secret").count() == 3 && text.matches("new\n").count() == 2, "{by}: {text} {message}");
    }
    // Where the program may write to a layer, it puts nothing at the denied path of the overlay either.
    let write = format!(
        "mkdir {at}/up/home/keys; echo evil > {at}/up/home/keys/id; echo fine > {at}/up/home/fine; cat {at}/m/home/fine"
    );
    let script = format!(
        "cd {at} && mount -t overlay o -o lowerdir={at}/low,upperdir={at}/up,workdir={at}/work,userxattr m && touch m/home/x; \
         {} run -q --backend jail -v {at}/up:{at}/up:rw -v {at}/m:{at}/m --deny {at}/m/home/keys -- /bin/sh -c '{write}'; \
         test -e up/home/keys || echo NOTHING",
        cofferdam().get_program().to_str().unwrap()
    );
    fs::remove_dir_all(tree.path().join("up")).unwrap();
    fs::create_dir(tree.path().join("up")).unwrap();
    fs::set_permissions(tree.path().join("up"), fs::Permissions::from_mode(0o777)).unwrap();
    let Some((text, message)) = among_mounts(&script) else { return };
    assert_eq!(text, "fine\nNOTHING\n", "{message}");
}

#[test]
fn a_denied_path_in_an_overlay_is_refused_where_the_name_of_a_layer_is_covered_since() {
    let tree = open_directory();
    let at = path(tree.path());
    for dir in ["low/layer/keys", "x:y", "m", "view"] {
        fs::create_dir_all(tree.path().join(dir)).unwrap();
    }
    fs::write(tree.path().join("low/layer/keys/id"), "secret").unwrap();
    // The other layer has a colon in its name.
    let mount =
        format!("cd {at} && mount -t overlay o -o 'lowerdir={at}/low/layer:{at}/x\\:y' m && mount --bind low view");
    let read = format!("for place in m low/layer view/layer; do cat {at}/$place/keys/id; done");
    let volume = format!("-v {at}:{at} -w /");
    let run = format!("{} run -q --backend jail", cofferdam().get_program().to_str().unwrap());
    for (cover, refused) in [
        ("true", false),
        ("mount -t tmpfs t x:y", true),
        ("mount -t tmpfs t low", true),
        ("mount -t tmpfs t low/layer", true),
        ("mount -t tmpfs t low/layer/keys", true),
    ] {
        let deny = format!("{mount} && {cover} && exec {run} {volume} --deny {at}/m/keys/id -- /bin/sh -c '{read}'");
        let Some((text, message)) = among_mounts(&deny) else { return };
        assert!(!text.contains("secret"), "{cover}: {text} {message}");
        assert_eq!(message.contains("another mount covers a layer"), refused, "{cover}: {text} {message}");
        // A volume of the overlay is refused alike, and without either all is as the mounts have it.
        let inside = format!("{mount} && {cover} && exec {run} -v {at}/m/keys:/in -w / -- /bin/cat /in/id");
        let (text, message) = among_mounts(&inside).unwrap();
        assert_eq!(text.contains("secret"), !refused, "{cover}: {text} {message}");
        let open = format!("{mount} && {cover} && exec {run} {volume} -- /bin/sh -c '{read}'");
        let (text, message) = among_mounts(&open).unwrap();
        assert!(text.contains("secret"), "{cover}: {text} {message}");
    }
}

#[test]
fn the_program_cannot_make_a_run_look_like_one_that_never_began() {
    let code = "
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
nothing, seen = (ctypes.c_ulong * 2)(0, 0), (ctypes.c_ulong * 2)(0, 0)
print('own', libc.prlimit(0, 7, None, seen), 'init', libc.prlimit(1, 7, nothing, None), flush=True)
time.sleep(0.3)
print('ran')
";
    let out = output(&["run", "-q", "--", PYTHON, "-c", code]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "own 0 init -1\nran\n");
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn kept_changes_take_no_more_space_than_the_layer() {
    let tree = writable();
    for dir in ["gone", "shut"] {
        fs::create_dir(tree.path().join(dir)).unwrap();
        fs::write(tree.path().join(dir).join("old"), "old").unwrap();
    }
    let keep = tree.path().with_extension("kept");
    let code = "
import os, shutil
os.chdir('/w')
f = os.open('sparse', os.O_CREAT | os.O_RDWR, 0o600)
os.truncate(f, 1 << 29)
os.pwrite(f, b'end', (1 << 29) - 3)
data = os.urandom(1 << 20)
open('twin0', 'wb').write(data)
for i in range(1, 40): os.link('twin0', f'twin{i}')
open('locked', 'w').write('locked')
os.chmod('locked', 0)
open('shut/new', 'w').write('new')
os.chmod('shut', 0)
shutil.rmtree('gone')
os.mkdir('gone')
open('gone/new', 'w').write('new')
";
    let w = format!("{}:/w:cow", path(tree.path()));
    let arguments =
        ["run", "--json", "-v", &w, "--keep-changes", path(&keep), "--", PYTHON, "-c", code].map(str::to_owned);
    let (exit, outcome) = common::outcome(&arguments);
    assert_eq!((exit, &outcome["error"]), (0, &serde_json::Value::Null), "{outcome}");
    let used = Command::new("du").args(["-s", "--block-size=1", path(&keep)]).output().unwrap();
    let used: u64 = String::from_utf8_lossy(&used.stdout).split('\t').next().unwrap().parse().unwrap();
    let sparse = fs::metadata(keep.join("sparse")).unwrap().len();
    Command::new("chmod").args(["-R", "u+rwX", path(&keep)]).status().unwrap();
    let kept = |name: &str| fs::read_to_string(keep.join(name)).unwrap();
    let held = (kept("locked"), kept("shut/new"), fs::metadata(keep.join("twin39")).unwrap().len());
    let changes: Vec<String> = outcome["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{} {}", c["kind"].as_str().unwrap_or_default(), c["path"].as_str().unwrap_or_default()))
        .filter(|c| !c.contains("twin"))
        .collect();
    fs::remove_dir_all(&keep).unwrap();
    assert!(used < 8 << 20 && sparse == 1 << 29, "{used} bytes used, {sparse} long");
    assert_eq!(held, ("locked".into(), "new".into(), 1 << 20));
    let wanted = ["A /w/gone/new", "D /w/gone/old", "A /w/locked", "M /w/shut", "A /w/shut/new", "A /w/sparse"];
    assert_eq!(changes, wanted, "the mode of `shut` is another");
}

#[test]
fn memory_is_counted_without_a_cgroup_in_shared_mappings_too() {
    let code = "
import ctypes, mmap, sys, time
ctypes.CDLL(None).prctl(15, b'\\xff)', 0, 0, 0)
kind = mmap.MAP_SHARED if sys.argv[1] == 'shared' else mmap.MAP_PRIVATE
m = mmap.mmap(-1, 400 << 20, flags=kind | mmap.MAP_ANONYMOUS)
for i in range(0, len(m), 4096): m[i] = 1
time.sleep(1)
print('kept')
";
    for (kind, memory, held) in [("shared", "128m", true), ("private", "128m", true), ("shared", "1g", false)] {
        let arguments =
            ["run", "-q", "--memory", memory, "--best-effort=limits.memory_mb", "--", PYTHON, "-c", code, kind];
        let out = output(&arguments);
        assert_eq!(out.stdout.is_empty(), held, "{kind} {memory}: {out:?}");
        assert_eq!(out.status.code() == Some(137), held, "{kind} {memory}: {out:?}");
    }
}

#[test]
fn the_host_view_does_not_say_which_machine_it_is() {
    let code = "
import os
for path in '/etc/hostname', '/etc/machine-id', '/var/lib/dbus/machine-id':
    if os.path.exists(path): print(path, open(path).read().strip())
print(os.uname().nodename)
";
    let message = python(&["--root", "host", "--hostname", "inside"], code);
    assert!(message.ends_with("inside\n"), "{message}");
    for file in ["/etc/hostname", "/etc/machine-id", "/var/lib/dbus/machine-id"] {
        let Ok(own) = fs::read_to_string(file) else { continue };
        assert!(message.contains(file) && !message.contains(&format!("{file} {}\n", own.trim())), "{message}");
    }
}

#[test]
fn the_layers_that_hide_names_in_the_next_run_cannot_be_changed() {
    for there in [true, false] {
        let home = open_directory();
        if there {
            fs::create_dir(home.path().join(".cache")).unwrap();
        }
        let code = "
import os
def attempt(f, *a):
    try: f(*a); return 'done'
    except OSError as e: return 'refused'
print(attempt(os.makedirs, '/w/.cache/cofferdam/hidden/x'), attempt(os.makedirs, '/w/.cache/other'))
print(attempt(os.rename, '/w/.cache', '/w/x'), attempt(os.rename, '/w/.cache/cofferdam', '/w/x'))
";
        let mut command = cofferdam();
        command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR");
        let w = format!("{}:/w:rw", path(home.path()));
        let out = command.args(["run", "-q", "-v", &w, "--", PYTHON, "-c", code]).output().unwrap();
        if !is_root() {
            assert_eq!(String::from_utf8_lossy(&out.stdout), "refused done\nrefused refused\n", "{there}: {out:?}");
        }
    }
}

#[test]
fn whiteout_layer_in_use_cannot_be_changed() {
    for (there, variable) in [(true, "HOME"), (false, "HOME"), (false, "XDG_CACHE_HOME"), (true, "XDG_CACHE_HOME")] {
        let (home, tree) = (open_directory(), open_directory());
        if there {
            fs::create_dir(home.path().join(".cache")).unwrap();
        }
        for i in 0..80 {
            fs::write(tree.path().join(format!("s{i}")), "SECRET").unwrap();
        }
        fs::write(tree.path().join("open"), "shown").unwrap();
        let code = "
import os, glob
for found in glob.glob('/w/**/s4', recursive=True, include_hidden=True): 
    try: os.unlink(found)
    except OSError: pass
for name in 'open', 's4', 's5':
    try: print(open('/t/' + name).read())
    except OSError: print('refused')
";
        let cache = if variable == "HOME" { home.path().to_owned() } else { home.path().join(".cache") };
        let volumes = [format!("{}:/w:rw", path(home.path())), format!("{}:/t", path(tree.path()))];
        let denied: Vec<String> = (0..80).map(|i| format!("{}/s{i}", path(tree.path()))).collect();
        for round in 0..2 {
            let mut command = cofferdam();
            command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env_remove("XDG_RUNTIME_DIR").env(variable, &cache);
            command.args(["run", "-q", "-v", &volumes[0], "-v", &volumes[1]]);
            command.args(denied.iter().flat_map(|name| ["--deny", name]));
            let out = command.args(["--", PYTHON, "-c", code]).output().unwrap();
            let message = String::from_utf8_lossy(&out.stdout);
            assert_eq!(message, "shown\nrefused\nrefused\n", "{there} {variable} {round}: {out:?}");
        }
    }
}

#[test]
fn a_single_file_can_be_given_for_writing() {
    let tree = writable();
    let file = tree.path().join("notes");
    fs::write(&file, "old").unwrap();
    let message = python(&["-v", &format!("{}:/notes:rw", path(&file))], "open('/notes', 'w').write('new')");
    assert_eq!((message.as_str(), fs::read_to_string(&file).unwrap().as_str()), ("", "new"));
}

#[test]
fn stalled_reader_suspends_no_limit() {
    let code = "
import mmap, os, sys, time
if os.fork() == 0:
    os.write(1, b'x' * 400000)
    os._exit(0)
time.sleep(0.3)
m = mmap.mmap(-1, 400 << 20)
for i in range(0, len(m), 4096): m[i] = 1
time.sleep(20)
";
    for limit in [["--memory", "128m"], ["--cpu-time", "1"]] {
        let code = if limit[0] == "--memory" {
            code
        } else {
            "
import os
for i in range(3):
    if os.fork() == 0:
        while True: pass
os.write(1, b'x' * 400000)
os.wait()
"
        };
        let marker = common::marker();
        let mut child = cofferdam()
            .args(["run", "-q", "--best-effort=limits", "--timeout", "20s"])
            .args(limit)
            .args(["--", PYTHON, "-c", code, &marker])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = child.stdout.take().unwrap(); // held open, and not read
        let patience = std::time::Duration::from_secs(5);
        common::eventually("the program runs", patience, || common::carrying(&marker).len() > 2);
        common::eventually("only the command is left", patience, || common::carrying(&marker).len() == 1);
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
        assert!(rest.iter().all(|&b| b == b'x') && rest.len() > 64 << 10, "{}", rest.len());
        assert_eq!(child.wait().unwrap().code(), Some(137), "{limit:?}");
    }
}

#[test]
fn calls_that_fail_cost_init_nothing() {
    let tree = writable();
    let code = "
import os, resource
os.symlink('/nonexistent/x', '/w/astray')
def attempt(path):
    try: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)); return 0
    except OSError as e: return e.errno
for i in range(400): last = attempt('/w/astray')
print(last)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for i in range(400): last = attempt('/w/file')
print(last)
os.close(0)
print(attempt('/w/file'))
";
    let script = "ulimit -n 256; exec \"$@\"";
    let out = Command::new("/bin/sh")
        .args(["-c", script, "sh", cofferdam().get_program().to_str().unwrap(), "run", "-q"])
        .args(["-v", &format!("{}:/w:rw", path(tree.path())), "--", PYTHON, "-c", code])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "2\n24\n0\n", "{out:?}");
}

#[test]
fn many_denied_names_in_a_directory_uncover_no_mount() {
    let tree = open_directory();
    fs::create_dir(tree.path().join("covered")).unwrap();
    fs::write(tree.path().join("covered/secret"), "secret").unwrap();
    let names: Vec<String> = (0..80).map(|i| format!("{}/name{i}", path(tree.path()))).collect();
    for name in &names {
        fs::write(name, "denied").unwrap();
    }
    let w = format!("{}:/w", path(tree.path()));
    let mut arguments = vec!["-v", &w, "--tmpfs", "/w/covered"];
    for name in &names {
        arguments.extend(["--deny", name]);
    }
    let code = "
import os
print(os.listdir('/w/covered'))
readable = 0
for i in range(80):
    try: readable += len(open(f'/w/name{i}').read())
    except OSError: pass
print(readable)
";
    assert_eq!(python(&arguments, code), "[]\n0\n");
    assert_eq!(python(&arguments[..2], code), "['secret']\n480\n");
}

#[test]
fn deny_and_protect_apply_to_the_sandboxes_own_files() {
    const PLACES: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev/shm"];
    let code = |path: &str| {
        format!(
            "
import os
def attempt(f, *a):
    try: f(*a); return 'done'
    except OSError as e: return 'refused'
print(attempt(os.listdir, '{path}'), attempt(open, '{path}/new', 'w'))
"
        )
    };
    for root in ["host", "minimal"] {
        for place in PLACES {
            // From a directory below none of them, which a run shows by itself.
            let with = |more: &[&str]| {
                let run = ["run", "-q", "-w", "/", "--root", root];
                let code = code(place);
                let out =
                    cofferdam().current_dir("/usr").args(run).args(more).args(["--", PYTHON, "-c", &code]).output();
                let out = out.unwrap();
                format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
            };
            assert_eq!(with(&[]), "done done\n", "{root}: {place}, nothing asked");
            assert_eq!(with(&["--protect", place]), "done refused\n", "{root}: {place} protected");
            assert!(with(&["--deny", place]).ends_with("refused\n"), "{root}: {place} denied");
        }
    }
    // Below a directory that is there from the start; and that directory cannot be moved out of the way.
    let code = "
import os
def attempt(f, *a):
    try: f(*a); return 'done'
    except OSError as e: return 'refused'
print(attempt(open, '/tmp/home/x', 'w'), attempt(open, '/tmp/home/y', 'w'))
print(attempt(os.rename, '/tmp/home', '/tmp/elsewhere'))
";
    assert_eq!(python(&["--deny", "/tmp/home/x"], code), "refused done\nrefused\n");
    assert_eq!(python(&["--protect", "/tmp/home/x"], code), "refused done\nrefused\n");
    assert_eq!(python(&[], code), "done done\ndone\n");
}

#[test]
fn files_that_the_sandbox_has_of_its_own_can_be_denied() {
    let code = "
for path in '/etc/passwd', '/proc/cpuinfo':
    try: print(len(open(path).read()) > 0)
    except OSError as e: print(e.strerror)
";
    let minimal = ["--root", "minimal"];
    assert_eq!(python(&minimal, code), "True\nTrue\n");
    let denied = python(&[&minimal[..], &["--deny", "/etc/passwd", "--deny", "/proc/cpuinfo"]].concat(), code);
    assert!(!denied.contains("True"), "{denied}");
}

#[test]
fn files_of_proc_cannot_be_denied() {
    let tree = open_directory();
    symlink("/proc/self/status", tree.path().join("link")).unwrap();
    let (link, links) = (tree.path().join("link"), format!("{0}:{0}", path(tree.path())));
    for path in [
        "/proc/self/environ",
        "/proc/thread-self/maps",
        "/proc/1/status",
        "/proc/mounts",
        "/proc/net/dev",
        "/dev/fd",
        "/dev/stdin",
        path(&link),
    ] {
        let out = output(&["run", "-v", &links, "--deny", path, "--", "true"]);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(125), "{text}");
        assert!(text.contains(path) && text.contains("cannot be held"), "{text}");
    }
}

#[test]
fn mount_on_a_link_to_the_root_hides_the_link_target() {
    let tree = open_directory();
    for name in ["w", "mnt"] {
        fs::create_dir(tree.path().join(name)).unwrap();
        fs::set_permissions(tree.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(tree.path().join("mnt/secret"), "shown").unwrap();
    symlink("../mnt", tree.path().join("w/link")).unwrap();
    let code = "import os; print(os.listdir('/w/link'), os.listdir('/mnt'))";
    let (w, m) = (format!("{}/w:/w", path(tree.path())), format!("{}/mnt:/mnt", path(tree.path())));
    let volumes = ["-v", &w, "-v", &m];
    assert_eq!(python(&volumes, code), "['secret'] ['secret']\n");
    assert_eq!(python(&[&volumes[..], &["--tmpfs", "/w/link"]].concat(), code), "[] []\n");
}

#[test]
fn root_of_the_sandbox_cannot_be_denied() {
    let root = open_directory();
    for dir in ["dev", "proc", "sys", "tmp"] {
        fs::create_dir(root.path().join(dir)).unwrap();
    }
    fs::write(root.path().join("file"), "").unwrap();
    let code = |more: &[&str]| {
        let all = [&["run", "-w", "/", "--root", path(root.path())], more, &["--", "/none"]].concat();
        let out = output(&all);
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    assert_eq!(code(&["--deny", "/file"]).0, Some(127), "nothing to start, and so far all is well");
    let (exit, text) = code(&["--deny", path(root.path()), "--deny", "/file"]);
    assert_eq!(exit, Some(125), "{text}");
    assert!(text.contains("has as its root"), "{text}");
}

#[test]
fn deny_through_a_link_denies_its_target_inside() {
    let tree = open_directory();
    fs::create_dir_all(tree.path().join("real/more")).unwrap();
    fs::write(tree.path().join("real/secret"), "shown").unwrap();
    fs::write(tree.path().join("real/more/secret"), "shown").unwrap();
    symlink("/w/real", tree.path().join("link")).unwrap();
    symlink("link/more", tree.path().join("again")).unwrap();
    symlink("/w/round", tree.path().join("round")).unwrap();
    // In more ways than there is time for.
    for i in 0..60 {
        symlink(format!("n{0}/../n{0}/../n{0}", i + 1), tree.path().join(format!("n{i}"))).unwrap();
    }
    symlink("n0/../n60/../n0", tree.path().join("n60")).unwrap();
    let code = "
for path in '/w/link/secret', '/w/real/secret', '/w/again/secret', '/w/real/more/secret':
    try: print(open(path).read())
    except OSError: print('refused')
";
    for access in ["ro", "rw", "cow"] {
        let w = format!("{}:/w:{access}", path(tree.path()));
        let with = |denied: &[&str]| python(&[&["-v", &w], denied].concat(), code);
        assert_eq!(
            with(&["--deny", "/w/round/x", "--deny", "/w/n0/x", "--deny", "/w/n30/y"]),
            "shown\nshown\nshown\nshown\n"
        );
        assert_eq!(with(&["--deny", "/w/link/secret"]), "refused\nrefused\nshown\nshown\n");
        assert_eq!(with(&["--deny", "/w/again/secret"]), "shown\nshown\nrefused\nrefused\n");
        assert_eq!(with(&["--deny", "/w/again"]), "shown\nshown\nrefused\nrefused\n");
    }
}

#[test]
fn rebinding_the_host_root_exposes_no_sandbox_internals() {
    let code = "
import glob, os
def read(path):
    try: return 'open' if open(path).read() else 'empty'
    except OSError: return 'refused'
for name in 'group', 'passwd':
    found = glob.glob('/tmp/all/sys/*/etc/' + name) + glob.glob('/tmp/all/sys/*/*/etc/' + name)
    print(read('/etc/' + name), read('/tmp/all/etc/' + name), [(path, read(path)) for path in found])
print(os.path.exists('/tmp/all/sys/maskfile'), os.path.isdir('/tmp/all/sys/kernel'))
";
    for how in ["ro", "rw"] {
        let message = python(&["-v", &format!("/:/tmp/all:{how}"), "--deny", "/etc/passwd"], code);
        let expected = "open open []\nrefused refused []\nFalse True\n";
        // As root a writable mount maps owners, which not every file system below the root can.
        let unmapped = is_root() && how == "rw" && message.contains("cannot map");
        assert!(message == expected || unmapped, "{how}: {message}");
    }
}

#[test]
fn source_unmounted_while_waiting_for_code_is_not_shown() {
    let script = format!(
        "mount -t tmpfs none /usr/local && echo secret > /usr/local/key && echo open > /usr/local/open || exit 3
         {{ sleep 0.3; $1; sleep 0.1; echo 'import os
for name in \"key\", \"open\":
    try: print(open(\"/usr/local/\" + name).read().strip())
    except OSError: print(\"refused\")'; }} |
             PATH=/usr/bin:/bin {} eval -q --deny /usr/local/key python -",
        cofferdam().get_program().to_str().unwrap()
    );
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-Urm"] };
    for (meanwhile, expected) in [("true", "refused\nopen\n"), ("umount -l /usr/local", "refused\nrefused\n")] {
        let out =
            Command::new("unshare").args(flags).args(["/bin/sh", "-c", &script, "sh", meanwhile]).output().unwrap();
        let message = String::from_utf8_lossy(&out.stderr).into_owned();
        if !is_root() && String::from_utf8_lossy(&out.stdout).is_empty() {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || message.contains("maps no id"), "{message}");
            eprintln!("skipped: a mount needs user 0 here: {message}");
            return;
        }
        assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{meanwhile}: {message}");
    }
}

#[test]
fn mount_on_a_link_is_protected_at_the_link_target() {
    let (tree, other) = (writable(), open_directory());
    fs::create_dir(other.path().join("real")).unwrap();
    symlink("real", other.path().join("link")).unwrap();
    for name in ["secret", "open", "kept"] {
        fs::write(tree.path().join(name), name).unwrap();
    }
    let (below, above) = (format!("{}:/tmp/w", path(other.path())), format!("{}:/tmp/w/link:rw", path(tree.path())));
    let held = ["--deny", "/tmp/w/real/secret", "--protect", "/tmp/w/real/kept", "--protect", "/tmp/w/real/new"];
    let code = "
def attempt(path, mode):
    try: return open(path, mode).write('x') if mode == 'w' else open(path).read()
    except OSError: return 'refused'
for way in 'link', 'real':
    at = f'/tmp/w/{way}/'
    print(attempt(at + 'open', 'r'), attempt(at + 'secret', 'r'), attempt(at + 'kept', 'w'), attempt(at + 'new', 'w'))
    print(attempt(at + 'made-' + way, 'w'))
";
    let message = python(&[&["-v", &below, "-v", &above][..], &held].concat(), code);
    assert_eq!(message, "open refused refused refused\n1\nopen refused refused refused\n1\n");
    assert_eq!(fs::read_to_string(tree.path().join("kept")).unwrap(), "kept");
}

/// Names in a directory with protected ones are made by init: what it follows must be what the program would reach.
#[test]
fn a_hard_link_follows_links_as_the_program_does() {
    if !common::needs("user namespaces") || !common::needs_python() {
        return;
    }
    let place = common::open_directory();
    let volume = place.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::fs::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let program = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.chdir('/volume')
open('file', 'w').write('mine')
def linkat(source, name): # os.link calls link(2), which follows nothing
    done = libc.linkat(-100, source.encode(), -100, name.encode(), 0x400)
    return ctypes.get_errno() if done else open(name).read()
def link(target, name):
    os.symlink(target, 'way')
    try: return linkat('way', name)
    finally: os.unlink('way')
print('ordinary', link('file', 'a'), link('/volume/file', 'b'))
fd = os.open('file', os.O_RDONLY)
print('own', linkat(f'/proc/self/fd/{fd}', 'c'))
print('procfs', {link(f'/proc/{who}/fd/{n}', f'd{n}') for who in ('self', '1') for n in range(64)} <= {2, 13, 40}, os.path.exists('d3'))
print('itself', os.readlink('/proc/self') if link('/proc/self/exe', 'e') != 40 else 40)
";
    let bind = format!("{}:/volume:rw", volume.display());
    let output = common::output(&["run", "--backend", "jail", "-v", &bind, "--", common::PYTHON, "-c", program]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "ordinary mine mine\nown mine\nprocfs True False\nitself 40\n", "{output:?}");
}

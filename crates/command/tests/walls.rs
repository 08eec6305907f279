//! What the walls hold, by real processes: every rule on every version of Landlock that this kernel has, by asking for less.
//!
//! Each attempt is made three times: behind walls on a victim outside (refused, and the victim is what it was), behind the
//! same walls inside (done), and on the victim without walls (done: so it was the walls). The process that attempts is this
//! test's own program.

#![cfg(target_os = "linux")]

mod probe;

use std::path::{Path, PathBuf};

use cofferdam_command::{Confined, Rule, SandboxMode, Strength, sandboxed_command};
use probe::{Scratch, attempt, run, versions};
use tokio::process::Command;

/// Walls around this program, with that version of Landlock.
fn confined(abi: u32, data: &Path) -> Confined {
    Confined::new(probe::own()).data_dir(data).landlock_at_most(abi)
}

fn walled(abi: u32, data: &Path) -> Command {
    let (command, enforcement) = confined(abi, data).command().unwrap();
    assert_eq!(enforcement.strength(), Strength::Full, "{enforcement}");
    assert_eq!(enforcement.landlock_abi, abi);
    command
}

fn plain() -> Command {
    Command::new(probe::own())
}

/// Files of a directory that attempts are made on.
fn furnish(dir: &Path) {
    for name in ["file", "victim", "gone", "moved", "linked"] {
        std::fs::write(dir.join(name), "as it was").unwrap();
    }
    std::fs::create_dir_all(dir.join("directory")).unwrap();
    std::fs::create_dir_all(dir.join("empty")).unwrap();
    std::fs::write(dir.join("directory/inner"), "as it was").unwrap();
}

/// Everything that can be seen of a tree: names, kinds, modes, owners, sizes, times, contents.
fn picture(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        let data = std::fs::symlink_metadata(&at).unwrap();
        let content = if data.is_file() { std::fs::read(&at).unwrap() } else { Vec::new() };
        let mut value = [0u8; 16];
        let attribute = rustix::fs::lgetxattr(&at, "user.cofferdam", &mut value[..]).ok();
        all.push(format!(
            "{} {:o} {} {} {} {:?} {attribute:?} {content:?}",
            at.display(),
            data.mode(),
            data.uid(),
            data.gid(),
            data.nlink(),
            (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec())
        ));
        if data.is_dir() {
            open.extend(std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all.sort();
    all
}

/// Attempts on what lies in one directory, which is named `D` here.
const ATTEMPTS: &[&str] = &[
    "write D/new",
    "append D/file",
    "overwrite D/file",
    "mkdir D/new",
    "unlink D/gone",
    "rmdir D/empty",
    "symlink D/new",
    "fifo D/new",
    "rename D/moved D/renamed",
    "link D/linked D/link",
    "chmod D/victim",
    "chmod D/directory",
    "fchmod D/victim",
    "fchmodat-by-descriptor D/victim",
    "chmod-relative D/victim",
    "chown D/victim",
    "lchown D/victim",
    "utimes D/victim",
    "touch D/victim",
    "futimes D/victim",
    "setxattr D/victim",
    "fsetxattr D/victim",
];

#[tokio::test]
async fn nothing_outside_is_changed_on_any_version() {
    let attributes = probe::attributes().await;
    for abi in versions() {
        for words in ATTEMPTS.iter().filter(|words| attributes || !words.contains("xattr")) {
            let scratch = Scratch::new();
            let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
            furnish(&outside);
            furnish(&data);
            let at = |dir: &Path| words.replace('D', &dir.display().to_string());
            let before = picture(&outside);
            let refused = run(walled(abi, &data), &at(&outside)).await;
            assert!(["EACCES", "EPERM", "EXDEV"].contains(&refused.as_str()), "{abi}: {words}: {refused}");
            assert_eq!(picture(&outside), before, "{abi}: {words}");
            assert_eq!(run(walled(abi, &data), &at(&data)).await, "done", "{abi}: {words}: the twin inside");
            assert_eq!(run(plain(), &at(&outside)).await, "done", "{abi}: {words}: the twin without walls");
            assert_ne!(picture(&outside), before, "{abi}: {words}: it changes what can be seen");
        }
    }
}

#[tokio::test]
async fn truncation_is_held_on_any_version() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        for way in ["truncate-reading", "truncate-neither", "truncate-writing"] {
            let before = picture(&outside);
            let at = |dir: &Path| format!("{way} {}/victim", dir.display());
            assert_eq!(run(walled(abi, &data), &at(&outside)).await, "EACCES", "{abi}: {way}");
            assert_eq!(picture(&outside), before, "{abi}: {way}");
            let inside = run(walled(abi, &data), &at(&data)).await;
            // Before version 3 only by opening for writing.
            let wanted = if abi < 3 && way != "truncate-writing" { "EACCES" } else { "done" };
            assert_eq!(inside, wanted, "{abi}: {way}");
        }
        assert_eq!(run(plain(), &format!("truncate-reading {}/victim", outside.display())).await, "done");
        assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"");
    }
}

#[tokio::test]
async fn nothing_moves_or_is_linked_across() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        let before = picture(&outside);
        let (o, d) = (outside.display(), data.display());
        for words in [
            format!("rename {o}/victim {d}/in"),
            format!("rename {d}/victim {o}/out"),
            format!("rename {o}/directory {d}/in"),
            format!("link {o}/victim {d}/in"),
            format!("link {d}/victim {o}/out"),
            format!("exchange {o}/victim {d}/victim"),
        ] {
            let refused = run(walled(abi, &data), &words).await;
            assert!(["EACCES", "EXDEV", "EPERM"].contains(&refused.as_str()), "{abi}: {words}: {refused}");
            assert_eq!(picture(&outside), before, "{abi}: {words}");
        }
        // Between directories inside, from version 2 on.
        let inside = run(walled(abi, &data), &format!("rename {d}/victim {d}/directory/in")).await;
        assert_eq!(inside, if abi < 2 { "EXDEV" } else { "done" }, "{abi}");
        for words in [format!("link {o}/victim {o}/directory/in"), format!("rename {o}/victim {o}/directory/moved")] {
            assert_eq!(run(plain(), &words).await, "done", "{words}");
        }
    }
}

#[tokio::test]
async fn device_nodes_are_nobodys_to_make() {
    if !rustix::process::geteuid().is_root() {
        return probe::skip_unless_root("only root can make device nodes");
    }
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        for kind in ["mknod-character", "mknod-block"] {
            let words = format!("{kind} {}/node-{kind}", data.display());
            assert_eq!(run(walled(abi, &data), &words).await, "EPERM", "{abi}: {kind}");
            assert_eq!(run(plain(), &words).await, "done", "{abi}: {kind}: without walls");
            std::fs::remove_file(data.join(format!("node-{kind}"))).unwrap();
        }
    }
}

#[tokio::test]
async fn ioctl_reaches_harmless_devices_alone() {
    // Whatever the device answers without walls, it is not that permission is denied.
    let candidates =
        ["/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/console", "/dev/ttyS0", "/dev/mem", "/dev/vda", "/dev/rtc0"];
    let mut device = None;
    for path in candidates.into_iter().filter(|path| Path::new(path).exists()) {
        let answer = run(plain(), &format!("ioctl {path}")).await;
        if ["ENOTTY", "EINVAL", "ENOSYS", "done"].contains(&answer.as_str()) {
            device = Some(path);
            break;
        }
    }
    let Some(device) = device else {
        return probe::skip_unless_root("this machine has no device that this user can open");
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let refused = run(walled(abi, &data), &format!("ioctl {device}")).await;
        assert_eq!(refused, "EACCES", "{abi}: {device}");
        for harmless in ["/dev/null", "/dev/zero", "/dev/urandom"] {
            let answer = run(walled(abi, &data), &format!("ioctl {harmless}")).await;
            assert!(["ENOTTY", "EINVAL"].contains(&answer.as_str()), "{abi}: {harmless}: {answer}");
        }
        assert_eq!(run(walled(abi, &data), "terminal /dev/ptmx").await, "done", "{abi}");
    }
}

#[tokio::test]
async fn harmless_devices_and_shared_memory_are_written() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        for words in ["append /dev/null", "append /dev/zero", "overwrite /dev/null"] {
            assert_eq!(run(walled(abi, &data), words).await, "done", "{abi}: {words}");
        }
        let name = format!("/dev/shm/cofferdam-test-{}-{abi}", std::process::id());
        assert_eq!(run(walled(abi, &data), &format!("write {name}")).await, "done", "{abi}");
        std::fs::remove_file(&name).unwrap();
        let temporary = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let words = format!("append {}", temporary.path().display());
        assert_eq!(run(walled(abi, &data), &words).await, "done", "{abi}: /tmp");
    }
}

#[tokio::test]
async fn signals_reach_the_commands_own_processes_alone() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let mut victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = victim.id().unwrap();
        for call in ["kill", "quit"] {
            assert_eq!(run(walled(abi, &data), &format!("{call} {pid}")).await, "EPERM", "{abi}: {call}");
        }
        assert_eq!(
            run(walled(abi, &data), &format!("kill {}", std::process::id())).await,
            "EPERM",
            "{abi}: its caller"
        );
        assert!(victim.try_wait().unwrap().is_none(), "{abi}: it lives");
        for own in ["kill-own", "kill-own-group", "abort-own"] {
            assert_eq!(run(walled(abi, &data), own).await, "done", "{abi}: {own}");
        }
        assert_eq!(run(plain(), &format!("kill {pid}")).await, "done");
        assert!(!victim.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn no_file_system_is_made_that_works_outside() {
    // In a user namespace of its own, where anybody may; root needs none.
    let inside = |mut command: Command, maps: bool| {
        command.args(["--user", "--keep-caps", "--mount", "--propagation=unchanged"]);
        if maps {
            command.arg("--map-current-user");
        }
        command.arg(probe::own());
        command
    };
    let prepare = |scratch: &Scratch| {
        let at = |name: &str| scratch.directory(name).display().to_string();
        let (lower, upper, work) = (at("data/lower"), at("outside/upper"), at("outside/place"));
        let file = scratch.directory("outside/place/work").join("file");
        std::fs::write(&file, "").unwrap();
        (format!("overlay {lower} {upper} {work}"), file)
    };
    let scratch = Scratch::new();
    let (words, file) = prepare(&scratch);
    match run(inside(Command::new("/usr/bin/unshare"), true), &words).await.as_str() {
        "ENODEV" => return probe::skip("this kernel has no overlay file system"),
        answer => assert_eq!(answer, "done"),
    }
    assert!(!file.exists(), "a new overlay empties its work directory");
    for abi in versions() {
        let scratch = Scratch::new();
        let (words, file) = prepare(&scratch);
        let data = scratch.directory("data");
        let command = if rustix::process::geteuid().is_root() {
            walled(abi, &data)
        } else {
            inside(Confined::new("/usr/bin/unshare").data_dir(&data).landlock_at_most(abi).command().unwrap().0, false)
        };
        assert_eq!(run(command, &words).await, "EPERM", "{abi}");
        assert!(file.exists(), "{abi}");
    }
}

#[tokio::test]
async fn limits_of_other_processes_are_out_of_reach() {
    let limits = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        text.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned()
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = victim.id().unwrap();
        let before = limits(pid);
        assert_eq!(run(walled(abi, &data), &format!("limit {pid}")).await, "EPERM", "{abi}");
        assert_eq!(limits(pid), before, "{abi}");
        let caller = format!("limit {}", std::process::id());
        assert_eq!(run(walled(abi, &data), &caller).await, "EPERM", "{abi}: its caller");
        assert_eq!(run(walled(abi, &data), "limit-own").await, "done", "{abi}: its own");
        assert_eq!(run(plain(), &format!("limit {pid}")).await, "done");
        assert_ne!(limits(pid), before);
    }
}

#[tokio::test]
async fn sockets_of_other_processes_are_out_of_reach() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let path = scratch.path().join("outside.sock");
    let name = format!("cofferdam-test-{}", std::process::id());
    let _by_path = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let _by_name = probe::abstract_listener(&name);
    let words = [format!("connect-path {}", path.display()), format!("connect-abstract {name}")];
    for abi in versions() {
        for words in &words {
            let refused = run(walled(abi, &data), words).await;
            assert_eq!(refused, "EAFNOSUPPORT", "{abi}: {words}");
        }
        assert_eq!(run(walled(abi, &data), "socketpair").await, "done", "{abi}: a pair of its own");
    }
    for words in &words {
        assert_eq!(run(plain(), words).await, "done", "{words}: without walls");
    }
    // Granted, it is Landlock's to keep abstract sockets apart, and paths are what was granted.
    for abi in versions() {
        let granted = confined(abi, &data).unix_sockets(true);
        if abi < 6 {
            let error = granted.clone().command().unwrap_err().to_string();
            assert!(error.contains("abstract sockets held not at all") && error.contains("hint: "), "{error}");
            continue;
        }
        let (command, _) = granted.clone().command().unwrap();
        assert_eq!(run(command, &words[1]).await, "EPERM", "{abi}");
        let (command, _) = granted.command().unwrap();
        assert_eq!(run(command, &words[0]).await, "done", "{abi}");
    }
}

#[tokio::test]
async fn set_id_bits_and_powers_of_files_are_nobodys_to_give() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        furnish(&data);
        let d = data.display();
        for words in
            [format!("chmod-setuid {d}/victim"), format!("create-setuid {d}/new"), format!("setcap {d}/victim")]
        {
            assert_eq!(run(walled(abi, &data), &words).await, "EPERM", "{abi}: {words}");
        }
        assert_eq!(run(plain(), &format!("chmod-setuid {d}/victim")).await, "done");
    }
}

#[tokio::test]
async fn metadata_is_about_the_object_and_not_its_name() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&outside);
    furnish(&data);
    std::os::unix::fs::symlink(outside.join("victim"), data.join("soft")).unwrap();
    std::os::unix::fs::symlink(data.join("victim"), outside.join("soft")).unwrap();
    let before = picture(&outside);
    let abi = *versions().last().unwrap();
    let (o, d) = (outside.display(), data.display());
    for words in [
        format!("chmod {d}/soft"),
        format!("chmod {d}/../outside/victim"),
        format!("chmod /proc/self/root{o}/victim"),
        format!("chmod {o}/"),
        format!("lchown {o}/soft"),
        format!("setxattr {d}/soft"),
    ] {
        let refused = run(walled(abi, &data), &words).await;
        assert!(["EPERM", "ELOOP"].contains(&refused.as_str()), "{words}: {refused}");
        assert_eq!(picture(&outside), before, "{words}");
    }
    for words in [
        format!("chmod {d}/../data/victim"),
        format!("lchown {d}/soft"),
        format!("lutimes {d}/soft"),
        format!("chmod {o}/soft"),
    ] {
        assert_eq!(run(walled(abi, &data), &words).await, "done", "{words}");
        assert_eq!(picture(&outside), before, "{words}: what the link leads to");
    }
    // A link has no attributes and no mode of its own, and what it leads to is not taken for it.
    for words in [format!("lsetxattr {d}/soft"), format!("chmod-no-follow {d}/soft")] {
        assert_ne!(run(walled(abi, &data), &words).await, "done", "{words}");
        assert_eq!(picture(&outside), before, "{words}");
    }
}

#[tokio::test]
async fn a_name_that_changes_meanwhile_changes_nothing_outside() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&outside);
    furnish(&data);
    let before = picture(&outside);
    let (o, d) = (outside.display(), data.display());
    let words = format!("race {d}/link {d}/victim {o}/victim");
    let abi = *versions().last().unwrap();
    assert_eq!(run(walled(abi, &data), &words).await, "done");
    assert_eq!(picture(&outside), before);
    std::fs::remove_file(data.join("link")).unwrap();
    assert_eq!(run(plain(), &words).await, "done");
    assert_ne!(picture(&outside), before, "without walls it is changed");
}

#[tokio::test]
async fn the_network_is_had_unless_it_is_refused() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let words = format!("tcp {}", listener.local_addr().unwrap());
    for abi in versions() {
        assert_eq!(run(walled(abi, &data), &words).await, "done", "{abi}");
        let (command, enforcement) = confined(abi, &data).network(cofferdam_command::Network::None).command().unwrap();
        assert_eq!(enforcement.of(Rule::Network), Some(Strength::Full));
        assert_eq!(run(command, &words).await, "EAFNOSUPPORT", "{abi}");
        let (command, _) = confined(abi, &data).network(cofferdam_command::Network::None).command().unwrap();
        assert_eq!(run(command, "udp 127.0.0.1:9").await, "EAFNOSUPPORT", "{abi}");
    }
}

#[tokio::test]
async fn a_denied_path_is_neither_read_nor_listed_nor_executed() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (home, data) = (scratch.directory("home"), scratch.directory("home/data"));
        let (secret, beside) = (scratch.directory("home/secret"), scratch.directory("home/beside"));
        for dir in [&secret, &beside] {
            std::fs::write(dir.join("file"), "text").unwrap();
            std::fs::copy("/bin/true", dir.join("program")).unwrap();
        }
        let at = |what: &str, dir: &Path| match what {
            "list" => format!("list {}", dir.display()),
            "execute" => format!("execute {}/program", dir.display()),
            _ => format!("read {}/file", dir.display()),
        };
        for what in ["read", "list", "execute"] {
            let (command, enforcement) = confined(abi, &data).deny_read(&secret).command().unwrap();
            assert_eq!(enforcement.of(Rule::Reads), Some(Strength::Full));
            assert_eq!(run(command, &at(what, &secret)).await, "EACCES", "{abi}: {what}");
            let (command, _) = confined(abi, &data).deny_read(&secret).command().unwrap();
            assert_eq!(run(command, &at(what, &beside)).await, "done", "{abi}: {what}: beside it");
            assert_eq!(run(walled(abi, &data), &at(what, &secret)).await, "done", "{abi}: {what}: not denied");
        }
        // A narrower rule below a broad one takes nothing away: naming it as writable does not make it readable, either.
        let contradiction = confined(abi, &data).write(secret.join("file")).deny_read(&secret).command();
        assert!(contradiction.unwrap_err().to_string().contains("which is granted"));
        drop(home);
    }
}

#[tokio::test]
async fn in_the_mode_sandbox_reads_are_held_when_asked() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        let own = PathBuf::from(probe::own());
        let reads = |mode| confined(abi, &data).mode(mode).enforce_reads(true).read(own.parent().unwrap());
        let read = |dir: &Path| format!("read {}/victim", dir.display());
        let (command, enforcement) = reads(SandboxMode::Sandbox).command().unwrap();
        assert_eq!(enforcement.of(Rule::Reads), Some(Strength::Full));
        assert_eq!(run(command, &read(&outside)).await, "EACCES", "{abi}");
        for words in [read(&data), "read /etc/passwd".into(), "list /usr/bin".into(), "execute /bin/true".into()] {
            let (command, _) = reads(SandboxMode::Sandbox).command().unwrap();
            assert_eq!(run(command, &words).await, "done", "{abi}: {words}");
        }
        let (command, _) = reads(SandboxMode::Sandbox).read(&outside).command().unwrap();
        assert_eq!(run(command, &read(&outside)).await, "done", "{abi}: granted");
        // The mode rx means reading anywhere.
        let (command, enforcement) = reads(SandboxMode::Rx).command().unwrap();
        assert_eq!(enforcement.of(Rule::Reads), None);
        assert_eq!(run(command, &read(&outside)).await, "done", "{abi}: rx");
    }
}

#[tokio::test]
async fn the_three_modes_of_the_one_function() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let words = |dir: &Path, mode: SandboxMode| format!("write {}/{mode}", dir.display());
    for mode in [SandboxMode::Sandbox, SandboxMode::Rx] {
        let command = || sandboxed_command(&probe::own(), mode, &data);
        assert_eq!(run(command(), &words(&outside, mode)).await, "EACCES", "{mode}");
        assert_eq!(run(command(), &words(&data, mode)).await, "done", "{mode}");
    }
    let rwx = sandboxed_command(&probe::own(), SandboxMode::Rwx, Path::new("/not/looked/at"));
    assert_eq!(run(rwx, &words(&outside, SandboxMode::Rwx)).await, "done");
}

#[tokio::test]
async fn the_models_own_directory_is_written_where_it_exists() {
    // In a process of its own, whose home is another.
    if std::env::var_os("COFFERDAM_HOME_CASE").is_none() {
        for exists in [true, false] {
            let scratch = Scratch::new();
            let (home, _) = (scratch.directory("home"), scratch.directory("data"));
            if exists {
                std::fs::create_dir(home.join(".claude")).unwrap();
            }
            let mut command = Command::new(probe::own());
            command.args(["--exact", "the_models_own_directory_is_written_where_it_exists", "--nocapture"]);
            let output = command.env("HOME", &home).env("COFFERDAM_HOME_CASE", scratch.path()).output().await.unwrap();
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            assert_eq!(home.join(".claude/state").exists(), exists);
        }
        return;
    }
    let scratch = PathBuf::from(std::env::var_os("COFFERDAM_HOME_CASE").unwrap());
    let (home, data) = (scratch.join("home"), scratch.join("data"));
    let own = || sandboxed_command(&probe::own(), SandboxMode::Sandbox, &data);
    assert_eq!(run(own(), &format!("write {}/state", home.display())).await, "EACCES");
    let (_, enforcement) = Confined::new("true").data_dir(&data).command().unwrap();
    let state = format!("write {}/.claude/state", home.display());
    if home.join(".claude").exists() {
        assert_eq!(run(own(), &state).await, "done");
        assert_eq!(enforcement.notes, Vec::<String>::new());
    } else {
        assert_eq!(run(own(), &format!("mkdir {}/.claude", home.display())).await, "EACCES");
        assert!(enforcement.notes[0].contains(".claude does not exist"), "{enforcement}");
    }
}

#[tokio::test]
async fn the_models_own_directory_is_no_link_that_a_command_made() {
    // In a process of its own, whose home is another: one that commands write.
    if std::env::var_os("COFFERDAM_LINK_CASE").is_none() {
        let tmp = tempfile::tempdir_in("/tmp").unwrap();
        for in_data in [true, false] {
            let scratch = Scratch::new();
            let (data, _) = (scratch.directory("data"), scratch.directory("outside"));
            let home = if in_data { data } else { std::fs::canonicalize(tmp.path()).unwrap() };
            let mut command = Command::new(probe::own());
            command.args(["--exact", "the_models_own_directory_is_no_link_that_a_command_made", "--nocapture"]);
            let output = command.env("HOME", &home).env("COFFERDAM_LINK_CASE", scratch.path()).output().await.unwrap();
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        return;
    }
    let scratch = PathBuf::from(std::env::var_os("COFFERDAM_LINK_CASE").unwrap());
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let (data, outside) = (scratch.join("data"), scratch.join("outside"));
    let make = || Confined::new(probe::own()).data_dir(&data).command();
    std::os::unix::fs::symlink(&outside, home.join(".claude")).unwrap();
    let error = make().unwrap_err().to_string();
    assert!(error.contains("which can be written, leads it to"), "{error}");
    std::fs::remove_file(home.join(".claude")).unwrap();
    // One that stays in its tree leads nowhere new.
    std::fs::create_dir(home.join("state")).unwrap();
    std::os::unix::fs::symlink("state", home.join(".claude")).unwrap();
    let write = |dir: &Path| format!("write {}/new", dir.display());
    assert_eq!(run(make().unwrap().0, &write(&home.join(".claude"))).await, "done");
    assert_eq!(run(make().unwrap().0, &write(&outside)).await, "EACCES");
}

#[tokio::test]
async fn a_command_can_be_spawned_again_and_its_children_are_held_as_well() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&data);
    let mut command = sandboxed_command("sh", SandboxMode::Sandbox, &data);
    let script = "chmod 700 \"$2/victim\" && mkdir \"$2/made-$$\" && sh -c 'echo x > \"$0/file\"' \"$1\"";
    command.arg("-c").arg(script).arg("sh").arg(&outside).arg(&data).stderr(std::process::Stdio::piped());
    for _ in 0..3 {
        let output = command.output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("file: Permission denied"), "{told}");
    }
    let made =
        std::fs::read_dir(&data).unwrap().filter(|e| e.as_ref().unwrap().path().to_string_lossy().contains("made-"));
    assert_eq!(made.count(), 3);
    assert!(!outside.join("file").exists());
}

#[tokio::test]
async fn spawning_behind_the_walls_holds_the_same_and_touches_no_other_thread() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        for words in ["write D/new", "chmod D/victim", "kill-own"] {
            let at = |dir: &Path| words.replace('D', &dir.display().to_string());
            let mut wanted = vec![(at(&data), "done")];
            if words.contains('D') {
                wanted.push((at(&outside), if words.starts_with("chmod") { "EPERM" } else { "EACCES" }));
            }
            for (words, wanted) in wanted {
                let spawned = confined(abi, &data).spawn(|command| attempt(command, &words));
                let (child, enforcement) = spawned.unwrap();
                assert_eq!(enforcement.strength(), Strength::Full);
                assert_eq!(probe::answer(child.wait_with_output().await.unwrap()), wanted, "{abi}: {words}");
            }
        }
        // Ours is what it was.
        std::fs::write(outside.join("ours"), "x").unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(status.contains("NoNewPrivs:\t0\n") && status.contains("Seccomp:\t0\n"), "{status}");
    }
}

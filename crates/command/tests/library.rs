//! System calls that only a C library makes, by their numbers from Python: which reach other processes of the same
//! user, and what stops them. Each denial has its control.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod probe;

use cofferdam_command::{Confined, ConfinementRule, RuleStrength};
use probe::{Scratch, versions};
use tokio::process::Command;

#[tokio::test]
async fn scheduling_by_library_only_calls() {
    // ioprio_set, sched_setscheduler (idle), sched_setparam, sched_setattr (of size 48): each of another, and of itself.
    let text = "zero = ctypes.byref(ctypes.c_int(0))\n\
        attributes = (ctypes.c_uint * 12)(48, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0)\n\
        for pid in (int(sys.argv[1]), library.syscall(186)):\n    \
            call('io', 251, 1, pid, 3 << 13)\n    call('attributes', 314, pid, attributes, 0)\n    \
            call('class', 144, pid, 5, zero)\n    call('parameters', 142, pid, zero)\n\
        os.setpgid(0, 0)\n\
        call('io of the group', 251, 2, 0, 3 << 13)\n";
    let victim = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
    let pid = victim.id().unwrap().to_string();
    let four = |how: &str| ["io", "attributes", "class", "parameters"].map(|name| format!("{name} {how}")).join("\n");
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let (command, _) = Confined::new("python3").data_dir(&data).landlock_at_most(abi).command().unwrap();
        let Some(told) = probe::python(command, text, &[&pid]).await else { return probe::skip("no python3 here") };
        let wanted = format!("{}\n{}\nio of the group EPERM", four("EPERM"), four("done"));
        assert_eq!(told, wanted, "{abi}");
    }
    let told = probe::python(Command::new("python3"), text, &[&pid]).await.unwrap();
    assert_eq!(told, format!("{}\n{}\nio of the group done", four("done"), four("done")));
}

#[tokio::test]
async fn memory_queues_and_keys_of_the_same_user_are_out_of_reach() {
    // shmget, semget, msgget of one's own; then what the argument's number stands for: shmat, semctl and msgctl to remove it.
    let make = "made = [library.syscall(*args) for args in ((29, 0, 4096, 0o1600), (64, 0, 1, 0o1600), (68, 0, 0o1600))]\n\
        print(*made)\n";
    let use_it = "m, s, q = map(int, sys.argv[1:])\n\
        call('attach', 30, m, 0, 0o10000)\ncall('memory', 31, m, 0, 0)\ncall('semaphores', 66, s, 0, 0, 0)\n\
        call('queue', 71, q, 0, 0)\ncall('new', 29, 0, 4096, 0o1600)\ncall('posix', 241, b'cofferdam-none')\n\
        call('key', 248, b'user', b'cofferdam', b'x', 1, -2)\ncall('keyring', 250, 0, -2, 1)\n";
    let Some(made) = probe::python(Command::new("python3"), make, &[]).await else {
        return probe::skip("no python3 here");
    };
    let made: Vec<&str> = made.split(' ').collect();
    assert!(made.len() == 3 && !made.contains(&"-1"), "{made:?}");
    let names = ["attach", "memory", "semaphores", "queue", "new", "posix", "key", "keyring"];
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let confined = || Confined::new("python3").data_dir(&data).landlock_at_most(abi);
        let (command, enforcement) = confined().command().unwrap();
        for rule in [ConfinementRule::Ipc, ConfinementRule::Keys, ConfinementRule::Scheduling] {
            assert_eq!(enforcement.of(rule), Some(RuleStrength::Full), "{rule}");
        }
        let told = probe::python(command, use_it, &made).await.unwrap();
        assert_eq!(told, names.map(|name| format!("{name} EPERM")).join("\n"), "{abi}");
    }
    // Granted, they are had; keys are not.
    let scratch = Scratch::new();
    let (command, enforcement) =
        Confined::new("python3").data_dir(scratch.directory("data")).shared_ipc(true).command().unwrap();
    assert_eq!(enforcement.of(ConfinementRule::Ipc), None);
    let own = "id = call('new', 29, 0, 4096, 0o1600)\ncall('attach', 30, id, 0, 0)\ncall('memory', 31, id, 0, 0)\n\
        call('key', 248, b'user', b'cofferdam', b'x', 1, -2)\n";
    assert_eq!(probe::python(command, own, &[]).await.unwrap(), "new done\nattach done\nmemory done\nkey EPERM");
    // Unconfined, all of it can be removed: it was still there.
    let text = use_it
        .replace("call('new', 29, 0, 4096, 0o1600)", "library.syscall(31, call('new', 29, 0, 4096, 0o1600), 0, 0)");
    let told = probe::python(Command::new("python3"), &text, &made).await.unwrap();
    let wanted = names.map(|name| if name == "posix" { "posix ENOENT".into() } else { format!("{name} done") });
    assert_eq!(told, wanted.join("\n"));
}

#[tokio::test]
async fn no_lease_on_read_only_files() {
    let text = "import fcntl\nfd = os.open(sys.argv[1], os.O_RDONLY)\n\
        call('lease', 72, fd, 1024, 0)\ncall('flags', 72, fd, 3, 0)\n";
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let victim = outside.join("victim").display().to_string();
    std::fs::write(&victim, "").unwrap();
    for abi in versions() {
        let (command, _) = Confined::new("python3").data_dir(&data).landlock_at_most(abi).command().unwrap();
        let Some(told) = probe::python(command, text, &[&victim]).await else { return probe::skip("no python3 here") };
        assert_eq!(told, "lease EPERM\nflags done", "{abi}");
    }
    assert_eq!(probe::python(Command::new("python3"), text, &[&victim]).await.unwrap(), "lease done\nflags done");
}

#[tokio::test]
async fn privileged_system_calls_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return probe::skip_unless_root("only root has something to give up");
    }
    // In a network namespace of its own, and in a process of its own there: what is attempted is to set its loopback up,
    // by the ioctl and by netlink.
    if std::env::var_os("COFFERDAM_OWNER_CASE").is_none() {
        let mut command = Command::new("unshare");
        command.args(["--net", &probe::own(), "--exact", "privileged_system_calls_are_refused"]);
        let output = command.arg("--nocapture").env("COFFERDAM_OWNER_CASE", "1").output().await.unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let text = "import fcntl, socket, struct\n\
        up = struct.pack('16sH14s', b'lo', 1, b'')\n\
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        call('up', 16, datagrams.fileno(), 0x8914, up)\n\
        route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n\
        route.send(struct.pack('IHHII', 32, 16, 5, 1, 0) + struct.pack('BBHiII', 0, 0, 0, 1, 1, 1))\n\
        print('link', -struct.unpack_from('i', route.recv(4096), 16)[0])\n\
        # FITRIM asks the file system for more than a descriptor that reads: CAP_SYS_ADMIN.\n\
        call('trim', 16, os.open('/', os.O_RDONLY), 0xc0185879, None)\n\
        call('chown', 92, sys.argv[1].encode(), 1, 1)\n\
        print(open('/proc/self/status').read().split('CapPrm:')[1].split()[0])\n";
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let file = data.join("file").display().to_string();
        std::fs::write(&file, "").unwrap();
        let confined = || Confined::new("python3").data_dir(&data).landlock_at_most(abi);
        let (command, _) = confined().command().unwrap();
        let Some(told) = probe::python(command, text, &[&file]).await else { return probe::skip("no python3 here") };
        assert_eq!(told, "up EPERM\nlink 1\ntrim EPERM\nchown done\n00000000008005ff", "{abi}");
        let told = probe::python(Command::new("python3"), text, &[&file]).await.unwrap();
        assert!(told.starts_with("up done\nlink 0\ntrim ") && !told.contains("EPERM"), "{abi}: {told}");
    }
}

#[tokio::test]
async fn descriptors_of_the_caller_are_not_inherited() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let victim = outside.join("victim");
    std::fs::write(&victim, "").unwrap();
    let file = std::fs::OpenOptions::new().append(true).open(&victim).unwrap();
    // As a library in another language opens it.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
    let text = "call('write', 1, int(sys.argv[1]), b'x', 1)\n";
    let size = || std::fs::metadata(&victim).unwrap().len();
    if probe::which("python3").is_none() {
        return probe::skip("no python3 here");
    }
    for abi in versions() {
        let confined = || Confined::new("python3").data_dir(&data).landlock_at_most(abi);
        let (command, enforcement) = confined().command().unwrap();
        assert_eq!(enforcement.of(ConfinementRule::Descriptors), Some(RuleStrength::Full));
        assert_eq!(probe::python(command, text, &[&number]).await.unwrap(), "write EBADF", "{abi}");
        assert_eq!(size(), 0, "{abi}");
        let (command, enforcement) = confined().inherit_descriptors(true).command().unwrap();
        assert_eq!(enforcement.of(ConfinementRule::Descriptors), None);
        assert_eq!(probe::python(command, text, &[&number]).await.unwrap(), "write done", "{abi}");
        assert_eq!(size(), 1, "{abi}");
        // The same however it is spawned.
        let write = format!("import os; os.write({number}, b'x')");
        for (inherits, code, grown) in [(false, 1, 0), (true, 0, 1)] {
            let spawned = confined().inherit_descriptors(inherits).spawn(|command| {
                command.arg("-c").arg(&write).stderr(std::process::Stdio::null());
            });
            assert_eq!(spawned.unwrap().0.wait().await.unwrap().code(), Some(code), "{abi}");
            assert_eq!(size(), 1 + grown, "{abi}");
        }
        file.set_len(0).unwrap();
    }
}

#[tokio::test]
async fn standard_streams_are_inherited() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let (mut command, _) = Confined::new("cat").data_dir(&data).command().unwrap();
    let streams = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = streams.spawn().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut child.stdin.take().unwrap(), b"through").await.unwrap();
    assert_eq!(child.wait_with_output().await.unwrap().stdout, b"through");
}

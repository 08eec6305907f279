//! Runs a program under a seccomp filter alone, to try which programs a level keeps working:
//! `seccomp_run LEVEL [--notify] [--creates] [--trace] [--no-spawn] [--unix] [--landlock] -- PROGRAM ARGS…`.
//!
//! A tool for trying filters, not a sandbox: nothing but the filter stands between the program and the host.
//! With `--notify` every refusal is reported on stderr, and answered as the classifier says.

use std::error::Error;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use cofferdam_confine::seccomp::classify::{SeccompData, Verdict, classify};
use cofferdam_confine::seccomp::{
    Arch, Denials, ExecGate, FilterProgram, NoSpawn, SeccompReason, SeccompRequest, SyscallLevel, compile, syscall_name,
};

const EXEC_FD: i32 = 4095;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let level = match args.next().as_ref().and_then(|level| level.to_str()) {
        Some("disabled") => SyscallLevel::Disabled,
        Some("basic") => SyscallLevel::Basic,
        Some("standard") => SyscallLevel::Standard,
        Some("strict") => SyscallLevel::Strict,
        _ => return Err("usage: seccomp_run disabled|basic|standard|strict [OPTIONS] -- PROGRAM ARGS…".into()),
    };
    let mut request = SeccompRequest::of(level);
    for option in args.by_ref() {
        match option.to_str() {
            Some("--notify") => request.denials = Denials::Notify,
            Some("--creates") => request.notify_creates = true,
            Some("--trace") => request.trace = true,
            Some("--unix") => request.unix_sockets = true,
            Some("--no-spawn") => {
                request.no_spawn = Some(NoSpawn { exec_fd: EXEC_FD as u32, gate: ExecGate::Notify });
            }
            Some("--landlock") => {
                request.no_network_sockets = true;
                request.metadata_refused = true;
                request.private_ipc = false;
            }
            Some("--") => break,
            _ => return Err(format!("unknown option {option:?}").into()),
        }
    }
    let argv: Vec<CString> = args.map(|arg| CString::new(arg.as_bytes())).collect::<Result<_, _>>()?;
    if argv.is_empty() {
        return Err("no program".into());
    }
    let arch = Arch::native().ok_or("no filter for this architecture")?;
    let program = compile(&request, arch)?;
    let (reader, writer) = io::pipe()?;
    let (go_reader, go_writer) = io::pipe()?;
    // SAFETY: this program has one thread, so the child may do anything that the parent may.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error().into());
    }
    if child == 0 {
        drop((reader, go_writer));
        let error = start(&program, request.no_spawn.is_some(), &argv, writer.as_raw_fd(), go_reader.as_raw_fd());
        eprintln!("seccomp_run: {}: {error}", argv[0].to_string_lossy());
        // SAFETY: ends the process; nothing of it is used afterwards.
        unsafe { libc::_exit(127) }
    }
    drop(writer);
    if program.notifies() {
        let mut number = [0; 4];
        io::Read::read_exact(&mut &reader, &mut number)?;
        let listener = take_fd(child, i32::from_le_bytes(number))?;
        drop(go_writer);
        serve(&listener, &program, arch)?;
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, which writes one int to it.
    if unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        return Err(io::Error::last_os_error().into());
    }
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    std::process::exit(code)
}

/// In the child: everything up to exec. Returns only on failure.
fn start(program: &FilterProgram, no_spawn: bool, argv: &[CString], writer: i32, go: i32) -> io::Error {
    let mut pointers: Vec<_> = argv.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(std::ptr::null());
    if no_spawn {
        // SAFETY: the strings are NUL-terminated; fds are plain numbers.
        let placed = unsafe {
            let fd = libc::open(argv[0].as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
            libc::dup3(fd, EXEC_FD, libc::O_CLOEXEC)
        };
        if placed < 0 {
            return io::Error::last_os_error();
        }
    }
    let fprog =
        libc::sock_fprog { len: program.filter.len() as u16, filter: program.filter.as_ptr().cast_mut().cast() };
    let flags = if program.notifies() { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: `fprog` points to as many instructions as it says, laid out as the kernel's, alive during the call.
    let installed = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 {
            -1
        } else {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &fprog)
        }
    };
    if installed < 0 {
        return io::Error::last_os_error();
    }
    let listener = (installed as i32).to_le_bytes();
    // SAFETY: writes four bytes that are there and reads at most one into `end`; the environment is the process's own.
    unsafe {
        if program.notifies() && libc::write(writer, listener.as_ptr().cast(), 4) != 4 {
            return io::Error::last_os_error();
        }
        // The listener is closed by exec: wait until the parent has its copy.
        let mut end = 0u8;
        if program.notifies() && libc::read(go, (&raw mut end).cast(), 1) != 0 {
            return io::Error::last_os_error();
        }
        if no_spawn {
            let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) < 0 {
                return io::Error::last_os_error();
            }
            unsafe extern "C" {
                static environ: *const *const libc::c_char;
            }
            libc::syscall(libc::SYS_execveat, EXEC_FD, c"".as_ptr(), pointers.as_ptr(), environ, libc::AT_EMPTY_PATH);
        } else {
            libc::execvp(argv[0].as_ptr(), pointers.as_ptr());
        }
    }
    io::Error::last_os_error()
}

/// Takes a copy of a child's fd.
fn take_fd(pid: i32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: both calls take plain numbers and return new fds that are ours alone.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if pidfd < 0 {
            return Err(io::Error::last_os_error());
        }
        let pidfd = OwnedFd::from_raw_fd(pidfd as i32);
        let fd = libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// Answers notifications until no process is left under the filter.
fn serve(listener: &OwnedFd, program: &FilterProgram, arch: Arch) -> io::Result<()> {
    let mut started = false;
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that outlives the call.
        if unsafe { libc::poll(&mut poll, 1, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if poll.revents & libc::POLLIN == 0 {
            return Ok(());
        }
        // SAFETY: the kernel wants the structure zeroed; all its fields are numbers.
        let mut request: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request is of the size that the ioctl's number carries and outlives the call.
        if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut request) } < 0 {
            // The caller died between poll and here.
            continue;
        }
        let call = SeccompData {
            nr: request.data.nr as u32,
            arch: request.data.arch,
            instruction_pointer: request.data.instruction_pointer,
            args: request.data.args,
        };
        let verdict = classify(&program.classifier, &call);
        let go_on = match verdict.class() {
            Verdict::CREATE | Verdict::TRACE => true,
            Verdict::EXEC => !std::mem::replace(&mut started, true),
            _ => false,
        };
        let name = syscall_name(call.nr, arch).unwrap_or("?");
        if !go_on {
            eprintln!(
                "seccomp_run: refused {name}({:x?}) errno {} {:?}",
                call.args,
                verdict.errno(),
                SeccompReason::of(verdict)
            );
        }
        let response = libc::seccomp_notif_resp {
            id: request.id,
            val: 0,
            error: if go_on { 0 } else { -(verdict.errno() as i32) },
            flags: if go_on { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
        };
        // SAFETY: the response is of the size that the ioctl's number carries and outlives the call. It fails
        // when the caller has died since, and then it is not needed.
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &response) };
    }
}

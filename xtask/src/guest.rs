//! Runs a program under another kernel: QEMU without acceleration, a Debian cloud kernel, a file system in memory.
//!
//! For what this machine's kernel does not have: cgroup version 2 with every controller, older Landlock. `run`
//! packs the given files with a static busybox and `tests/guest/init.sh` into an initramfs, boots it, and gives back
//! what the command printed and its exit code. The guest has no disk, no network and no way to the host but its
//! serial console; the host is trusted by nothing that the guest prints, but for its one result line.
//!
//! Nothing is installed: the kernel's package is downloaded and unpacked under the target directory.

mod initramfs;
mod kernel;
pub(crate) mod systemd;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use initramfs::with_libraries;
pub(crate) use kernel::{Kernel, provide};

use crate::Result;

/// The time before a guest's end in which its init reports what has not ended.
const REPORTING: Duration = Duration::from_secs(30);
/// How that report begins.
const REPORT: &str = "@@report: ";
const INIT: &str = include_str!("../../tests/guest/init.sh");

/// One run in a guest.
#[derive(Debug, Clone)]
pub(crate) struct GuestSpec {
    /// The kernel image to boot.
    pub kernel: PathBuf,
    /// What the guest has besides busybox: files or whole directories of the host, and their absolute paths inside.
    /// Programs need their libraries too: see [`with_libraries`].
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Program and arguments, run as root in `/` with PATH and HOME set.
    pub command: Vec<String>,
    /// Whether the command is an init system that takes over as pid 1, mounts cgroups itself, and ends the guest by
    /// running `/guest-exit CODE` as root.
    pub as_init: bool,
    /// Kernel modules, loaded in this order before the command.
    pub modules: Vec<PathBuf>,
    /// Memory, MiB; the files count twice while booting.
    pub memory_mb: u32,
    /// After this the guest is ended and the run is an error.
    pub timeout: Duration,
}

impl GuestSpec {
    /// A run of `command` with 1 GiB of memory and a minute, without further files or modules.
    pub(crate) fn new(kernel: impl Into<PathBuf>, command: &[&str]) -> Self {
        Self {
            kernel: kernel.into(),
            files: Vec::new(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            as_init: false,
            modules: Vec::new(),
            memory_mb: 1024,
            timeout: Duration::from_secs(60),
        }
    }

    /// Adds a program of the host at a path inside, with the shared libraries that it loads at start.
    pub(crate) fn program(mut self, host: &Path, guest: impl Into<PathBuf>) -> Result<Self> {
        self.files.extend(with_libraries(host, guest.into())?);
        Ok(self)
    }

    /// Adds a file or directory.
    pub(crate) fn file(mut self, host: impl Into<PathBuf>, guest: impl Into<PathBuf>) -> Self {
        self.files.push((host.into(), guest.into()));
        self
    }
}

/// Boots, runs the command, powers off. Gives the command's exit code and all that it printed, both streams.
///
/// # Errors
/// When QEMU or busybox is missing, a file cannot be packed, or the guest ended without a result (a kernel panic,
/// the timeout): the console's text is part of the error then.
pub(crate) fn run(spec: &GuestSpec) -> Result<(i32, String)> {
    let once = || -> Result<(Console, String)> {
        let nonce = nonce()?;
        let directory = std::env::temp_dir().join(format!("cofferdam-guest-{nonce}"));
        std::fs::create_dir(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let result = boot(spec, &directory, &nonce);
        let removed = std::fs::remove_dir_all(&directory);
        let console = result?;
        removed.map_err(|error| format!("cannot remove {}: {error}", directory.display()))?;
        Ok((console, nonce))
    };
    let mut end = once()?;
    if let (Console::Stalled(console), _) = &end {
        eprintln!("nothing ran in the guest any more, its report neither: it is booted again; its console:\n{console}");
        end = once()?;
    }
    match end {
        (Console::Ended(console), nonce) => parse(&console, &nonce),
        (Console::Late(console) | Console::Stalled(console), _) => {
            Err(format!("the guest did not end within {:?}; its console:\n{console}", spec.timeout))
        }
    }
}

/// How a guest ended, with all that was on its console.
enum Console {
    Ended(String),
    /// The time was over, and the guest's init reported what was running.
    Late(String),
    /// The time was over, and not even that report came: the emulated processors stood still.
    Stalled(String),
}

fn boot(spec: &GuestSpec, directory: &Path, nonce: &str) -> Result<Console> {
    let image = directory.join("initramfs");
    initramfs::write(&image, spec, INIT, nonce)?;
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg", "-cpu", "max", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-smp", "2", "-m", &format!("{}M", spec.memory_mb), "-serial", "stdio", "-net", "none"])
        .arg("-kernel")
        .arg(&spec.kernel)
        .arg("-initrd")
        .arg(&image)
        .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init lsm=landlock,lockdown,yama"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut qemu = command
        .spawn()
        .map_err(|error| format!("cannot start qemu-system-x86_64: {error}\nhint: apt-get install qemu-system-x86"))?;
    // Both pipes are drained by threads of their own, so that a talkative guest never waits for us.
    let console = drain(qemu.stdout.take());
    let complaints = drain(qemu.stderr.take());
    let finished = wait(&mut qemu, spec.timeout)?;
    let text = |thread: std::thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&thread.join().unwrap_or_default()).replace('\r', "")
    };
    let (console, complaints) = (text(console), text(complaints));
    match finished {
        true if console.is_empty() => Err(format!("qemu printed nothing: {complaints}")),
        true => Ok(Console::Ended(console)),
        false if console.contains(REPORT) => Ok(Console::Late(console + &complaints)),
        false => Ok(Console::Stalled(console + &complaints)),
    }
}

fn drain<R: Read + Send + 'static>(stream: Option<R>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream
            && let Err(error) = stream.read_to_end(&mut bytes)
        {
            bytes.extend(format!("\n[console lost: {error}]").bytes());
        }
        bytes
    })
}

/// Waits for the end, or ends it; false when time was over.
fn wait(qemu: &mut Child, timeout: Duration) -> Result<bool> {
    let start = Instant::now();
    let lost = |error: std::io::Error| format!("cannot wait for qemu: {error}");
    loop {
        if qemu.try_wait().map_err(lost)?.is_some() {
            return Ok(true);
        }
        if start.elapsed() >= timeout {
            qemu.kill().map_err(lost)?;
            qemu.wait().map_err(lost)?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Cuts out what lies between the two lines that carry this run's nonce, which the command does not know.
fn parse(console: &str, nonce: &str) -> Result<(i32, String)> {
    let failed = |what: &str| format!("the guest {what}; its console:\n{console}");
    let (_, rest) =
        console.split_once(&format!("@@{nonce} start\n")).ok_or_else(|| failed("never started the command"))?;
    let (text, code) =
        rest.rsplit_once(&format!("@@{nonce} exit ")).ok_or_else(|| failed("ended before the command did"))?;
    let code = code.lines().next().and_then(|code| code.trim().parse().ok()).ok_or_else(|| failed("gave no code"))?;
    Ok((code, text.to_owned()))
}

fn nonce() -> Result<String> {
    let mut bytes = [0u8; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_result_is_what_lies_between_the_lines_with_the_nonce() {
        let console = "boot\n@@77 start\nhello\n@@66 exit 0\n@@77 exit 3\npowered off\n";
        assert_eq!(parse(console, "77"), Ok((3, "hello\n@@66 exit 0\n".to_owned())));
        assert!(parse("boot\nKernel panic\n", "77").unwrap_err().contains("Kernel panic"));
        assert!(parse("@@77 start\nhello\n", "77").unwrap_err().contains("ended before"));
    }
}

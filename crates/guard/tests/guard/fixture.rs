//! The fixture: directories in which a test's guard works, and helpers to query it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use cofferdam_guard::{ExecutionResult, Guard, GuardConfig, Refusal, Rule, Sandbox as _};

/// Wakes a thread.
pub(crate) struct Unpark(pub std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(came) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return came;
        }
        std::thread::park();
    }
}

/// A workspace and what lies beside it, gone when it is dropped. Not below /tmp, of which a sandbox has its own.
pub(crate) struct Fixture(PathBuf);

impl Fixture {
    pub(crate) fn new() -> Fixture {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = rustix::process::getuid().is_root();
        // The unprivileged pass has its home below /var/tmp.
        let parent = match (root, std::env::var_os("HOME")) {
            (false, Some(home)) if Path::new(&home).is_dir() && !Path::new(&home).starts_with("/nonexistent") => {
                PathBuf::from(home)
            }
            (false, _) => PathBuf::from("/var/tmp"),
            (true, _) => PathBuf::from("/var/lib"),
        };
        let place = Fixture(parent.join(format!("cofferdam-guard.{}.{n}", std::process::id())));
        std::fs::create_dir_all(place.0.join("work")).unwrap();
        std::fs::create_dir_all(place.0.join("outside")).unwrap();
        place
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.at(name)
    }

    /// Whether a sandbox shows what lies beside the workspace: not where it has a directory of its own instead.
    pub(crate) fn is_visible(&self) -> bool {
        let visible = !self.0.starts_with("/var/tmp") && !self.0.starts_with("/tmp");
        if !visible {
            eprintln!("not here: this user has no directory that a sandbox shows; root's pass has");
        }
        visible
    }

    pub(crate) fn guard(&self, config: GuardConfig) -> Guard {
        builder(config, &self.work()).build().unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn builder(config: GuardConfig, work: &Path) -> cofferdam_guard::GuardBuilder {
    let variables =
        [("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"), ("LANG", "C.UTF-8"), ("HOME", "/home/u")];
    Guard::builder(config, work).variables(variables.map(|(k, v)| (k.to_owned(), v.to_owned())))
}

pub(crate) fn allowing(commands: &[&str]) -> GuardConfig {
    GuardConfig {
        allowed_commands: commands.iter().map(|command| Rule::any(command)).collect(),
        run_as_root: true,
        ..GuardConfig::default()
    }
}

pub(crate) fn run(guard: &Guard, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal> {
    wait(guard.execute(command, args))
}

pub(crate) fn ok(guard: &Guard, command: &str, args: &[&str]) -> ExecutionResult {
    let result = run(guard, command, args).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result.exit_code, 0, "{command} {args:?}: {result:?}");
    result
}

pub(crate) fn has(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "{program} is missing");
        eprintln!("skipped: {program} is missing");
    }
    there
}

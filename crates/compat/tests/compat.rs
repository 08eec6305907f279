//! The public API under the older names: configurations of every form, awaited without a runtime, stopped and watched.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cofferdam_compat::{
    Call, ExecutionResult, JailExecutor, NsJailExecutor, ResourceUsage, SandboxExecutor, SeatbeltExecutor,
    detect_platform, is_nsjail_available, is_seatbelt_available,
};
use cofferdam_engine::backends::{ExportTarget, export};
use cofferdam_engine::facts::HostFacts;
use cofferdam_engine::{Ending, Monitor};
use cofferdam_policy::Policy;

/// Wakes a thread: all that an executor needs to be.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn policy(&self, code: &str) -> PathBuf {
        let argv = serde_json::json!(["sh", "-c", code]);
        self.write("policy.json", &format!(r#"{{"version":1,"command":{{"argv":{argv},"stdin":"caller"}}}}"#))
    }

    fn legacy(&self, code: &str, further: &str) -> PathBuf {
        let cmd = serde_json::json!(["sh", "-c", code]);
        let text = format!(
            r#"{{"name":"skill","mode":"EXEC","hostname":"omni-skill-x","cmd":{cmd},"env":["GREETING=hi"],
                "log_level":"info","mount":[],"clone_newnet":false,"unknown":true{further}}}"#
        );
        self.write("nsjail.json", &text)
    }
}

fn jail() -> JailExecutor {
    JailExecutor::new(60)
}

/// How many `sleep` processes have this argument.
fn sleeping(argument: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.filter(|l| l.starts_with(b"sleep") && l.split(|&b| b == 0).any(|a| a == argument.as_bytes())).count()
}

#[test]
fn a_policy_is_executed_and_awaited() {
    let files = Files::new();
    let path = files.policy("cat; echo err >&2; exit 4");
    let result = block_on(jail().execute(&path, "hello")).unwrap();
    assert_eq!((result.success, result.exit_code, result.error), (false, Some(4), None));
    assert_eq!((result.stdout.as_str(), result.stderr.as_str()), ("hello", "err\n"));
    assert!(result.memory_used_bytes.is_some());
}

#[test]
fn an_older_configuration_runs_with_a_private_network() {
    let files = Files::new();
    let path = files.legacy("cat; echo $GREETING; hostname; cat /proc/net/dev | wc -l", ",\"rlimit_as\":134217728");
    let executor = NsJailExecutor::default();
    let result = block_on(executor.execute(&path, "in ")).unwrap();
    assert_eq!(result.stdout, "in hi\nomni-skill-x\n3\n", "two lines of heading and loopback: {result:?}");
    let config = executor.load_config(&path).unwrap();
    assert_eq!((config.rlimit_as, config.cmd[0].as_str()), (134_217_728, "sh"));
    assert!(executor.load_config(Path::new("/no/such/file")).unwrap_err().contains("/no/such/file"));
}

#[test]
fn nsjails_own_configuration_is_executed() {
    let files = Files::new();
    let mut policy = Policy::base();
    policy.command.argv = ["sh", "-c", "echo from nsjail; id -u"].map(str::to_owned).to_vec();
    let written = export(&policy, ExportTarget::Nsjail, &HostFacts::default()).unwrap();
    let path = files.write("exported.json", &written.text);
    let result = jail().execute_sync(&path, "").unwrap();
    assert_eq!(result.stdout, "from nsjail\n1000\n", "{result:?}");
}

#[test]
fn a_timeout_is_minus_one_and_says_so() {
    let files = Files::new();
    let path = files.policy("sleep 65.25 & sleep 65.25");
    let call = Call { timeout: Some(Duration::from_millis(300)), ..Call::new(&path, b"") };
    let result = ExecutionResult::of(jail().run(call).unwrap()).unwrap();
    assert_eq!((result.exit_code, result.error.as_deref(), result.success), (Some(-1), Some("Timeout"), false));
    assert_eq!(sleeping("65.25"), 0);
    let legacy = files.legacy("sleep 65.5", ",\"time_limit\":1");
    let begun = Instant::now();
    let result = NsJailExecutor::new(None, 600).execute_sync(&legacy, "").unwrap();
    assert_eq!(result.error.as_deref(), Some("Timeout"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn dropping_the_future_kills_the_tree() {
    let files = Files::new();
    let path = files.policy("(setsid sleep 66.25) & sleep 66.25");
    let executor = jail();
    {
        let mut execution = executor.execute(&path, "");
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        assert!(execution.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        wait(|| sleeping("66.25") == 2);
    }
    wait(|| sleeping("66.25") == 0);
    // One that is never polled starts nothing.
    drop(executor.execute(&path, ""));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(sleeping("66.25"), 0);
}

fn wait(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it did not come to pass");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_running_sandbox_is_watched_on_request_and_as_a_stream() {
    let files = Files::new();
    let busy = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 0.3";
    let path = files.policy(busy);
    let handle = jail().start(Call::new(&path, b""));
    let samples: Vec<ResourceUsage> = handle.samples(Duration::from_millis(20)).collect();
    let outcome = handle.wait().unwrap().unwrap();
    assert_eq!(outcome.outcome, Ending::Exited, "{outcome:?}");
    assert!(samples.len() >= 5, "{samples:?}");
    assert!(samples.windows(2).all(|two| two[0].cpu_time_seconds <= two[1].cpu_time_seconds), "{samples:?}");
    assert!(samples.last().is_some_and(|last| last.cpu_time_seconds > 0.0), "{samples:?}");
    assert!(samples.iter().any(|s| s.memory_bytes > 0 && s.pid_count >= 1), "{samples:?}");
    assert_eq!(handle.usage(), None, "it is over");
    assert!(handle.is_over() && handle.wait_for(Duration::ZERO).is_none(), "it was taken");
}

#[test]
fn a_handle_stops_its_run() {
    let files = Files::new();
    let handle = jail().start(Call::new(&files.policy("sleep 67.25"), b""));
    wait(|| handle.usage().is_some_and(|u| u.pid_count >= 1));
    handle.cancel();
    let result = ExecutionResult::of(handle.wait().unwrap().unwrap()).unwrap();
    assert_eq!((result.exit_code, sleeping("67.25")), (Some(128 + 15), 0), "{result:?}");
}

#[test]
fn a_call_may_replace_the_command() {
    let files = Files::new();
    let path = files.policy("echo policy");
    let command = Some(["sh", "-c", "echo caller"].map(str::to_owned).to_vec());
    let outcome = jail().run(Call { command, ..Call::new(&path, b"") }).unwrap();
    assert_eq!(outcome.stdout, "caller\n");
}

#[test]
fn what_cannot_be_used_is_an_error_that_names_it() {
    let files = Files::new();
    let executor = jail();
    let gone = block_on(executor.execute(&PathBuf::from("/no/such/policy.json"), "")).unwrap_err();
    assert!(gone.contains("/no/such/policy.json") && gone.contains("export"), "{gone}");
    let cut = block_on(executor.execute(&files.write("cut.json", "{\"version\":1,"), "")).unwrap_err();
    assert!(cut.contains("cut.json") && cut.contains("line 1"), "{cut}");
    let wrong = files.write("wrong.json", r#"{"version":1,"command":{"argv":["true"]},"limits":{"memory_mb":0}}"#);
    let wrong = block_on(executor.execute(&wrong, "")).unwrap_err();
    assert!(wrong.contains("memory_mb"), "{wrong}");
    let missing = files.write("p.json", r#"{"version":1,"command":{"argv":["no-such-program"]}}"#);
    assert!(block_on(executor.execute(&missing, "")).unwrap_err().contains("no-such-program"));
    let bad = NsJailExecutor::new(Some("/no/such/nsjail".into()), 60);
    let bad = block_on(bad.execute(&files.policy("true"), "")).unwrap_err();
    assert!(bad.contains("/no/such/nsjail"), "named and not there is an error: {bad}");
}

#[test]
fn executors_are_chosen_at_run_time_and_shared() {
    let files = Files::new();
    let path = files.policy("cat");
    let executors: Vec<Arc<dyn SandboxExecutor>> = vec![Arc::new(NsJailExecutor::new(None, 60)), Arc::new(jail())];
    assert_eq!(executors.iter().map(|e| e.name()).collect::<Vec<_>>(), ["nsjail", "jail"]);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let (executor, path) = (Arc::clone(&executors[i % 2]), &path);
            scope.spawn(move || {
                let input = format!("call {i}");
                let result = block_on(executor.execute(path, &input)).unwrap();
                assert_eq!((result.success, result.stdout), (true, input));
            });
        }
    });
}

#[test]
fn the_platform_is_known() {
    assert_eq!(detect_platform(), "linux");
    assert!(!is_seatbelt_available() && !is_nsjail_available(Some(Path::new("/no/such/nsjail"))));
    let seatbelt = SeatbeltExecutor::new(60);
    let error = block_on(seatbelt.execute(&Files::new().policy("true"), "")).unwrap_err();
    assert!(seatbelt.name() == "seatbelt" && !error.is_empty());
    assert_eq!(Monitor::default().usage(), None);
}

#[test]
fn a_skills_configuration_is_a_value_a_file_and_a_policy() {
    use cofferdam_compat::executor::{MountConfig, SandboxConfig};
    let config = SandboxConfig {
        skill_id: "my-skill".to_string(),
        mode: "EXEC".to_string(),
        hostname: "omni-skill".to_string(),
        cmd: vec!["sh".to_string(), "-c".to_string(), "cat; echo $A; hostname".to_string()],
        env: vec!["A=b".to_string(), "PATH=/usr/bin:/bin".to_string()],
        mounts: vec![MountConfig {
            src: "/usr".to_string(),
            dst: "/usr".to_string(),
            fstype: "bind".to_string(),
            rw: false,
        }],
        rlimit_as: 268_435_456,
        rlimit_cpu: 60,
        log_level: "info".to_string(),
    };
    let policy = Policy::try_from(config.clone()).unwrap();
    assert_eq!((policy.limits.memory_mb, policy.limits.cpu_seconds), (256, 60));
    let files = Files::new();
    let path = files.write("skill.json", &serde_json::to_string(&config).unwrap());
    let result = block_on(jail().execute(&path, "in ")).unwrap();
    assert_eq!(result.stdout, "in b\nomni-skill\n", "{result:?}");
    let json = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<ExecutionResult>(&json).unwrap(), result);
    let bad = Policy::try_from(SandboxConfig { env: vec!["A".into()], ..config }).unwrap_err();
    assert!(bad.contains("is not NAME=VALUE"), "{bad}");
}

#[test]
fn custom_executors_work_beside_the_others() {
    struct DryRun;

    #[async_trait::async_trait]
    impl SandboxExecutor for DryRun {
        async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String> {
            Err(format!("{}: not run with {input:?}", config_path.display()))
        }
        fn name(&self) -> &str {
            "dry-run"
        }
    }

    let files = Files::new();
    let path = files.policy("cat");
    let executors: Vec<Box<dyn SandboxExecutor>> = vec![Box::new(DryRun), Box::new(jail())];
    let came: Vec<_> = executors.iter().map(|e| (e.name().to_owned(), block_on(e.execute(&path, "in")))).collect();
    assert!(came[0].1.as_ref().unwrap_err().ends_with("not run with \"in\""), "{came:?}");
    assert_eq!((came[1].0.as_str(), came[1].1.as_ref().unwrap().stdout.as_str()), ("jail", "in"));
}

//! The executors: which backend each prefers, and one call from a configuration's path to its result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cofferdam_policy::{BackendName, Policy, Stdin};

use super::config::{self, Form, Loaded};
use super::execution::{ExecutionResult, SandboxExecutor, in_words};
use super::legacy::NsJailJsonConfig;
use super::task::{Handle, RunResult, Task};
use cofferdam_engine::Failure;
use cofferdam_engine::Prepared;
use cofferdam_engine::backends::Tools;
use cofferdam_engine::engine::Engine;
use cofferdam_engine::monitor::Monitor;
use cofferdam_engine::{Cancel, Input, Io, Output};

pub use super::skill_config::{MountConfig, SandboxConfig};

/// Seconds that an execution may take when neither its configuration nor its executor says.
pub const DEFAULT_TIMEOUT: u64 = 60;

/// One execution, with what a caller may set beside the configuration.
pub struct Call {
    /// Path of the configuration.
    pub config_path: PathBuf,
    /// Standard input.
    pub input: Vec<u8>,
    /// Runs this instead of the configuration's command.
    pub command: Option<Vec<String>>,
    /// Wall limit instead of the configuration's.
    pub timeout: Option<Duration>,
    /// Where the output goes.
    pub output: Output,
    /// Ends it.
    pub cancel: Cancel,
    /// Measures what it uses.
    pub monitor: Monitor,
}

impl Call {
    /// A call with nothing set beside the configuration.
    pub fn new(config_path: &Path, input: &[u8]) -> Call {
        Call {
            config_path: config_path.to_owned(),
            input: input.to_vec(),
            command: None,
            timeout: None,
            output: Output::Capture,
            cancel: Cancel::default(),
            monitor: Monitor::default(),
        }
    }
}

/// What the executors share.
#[derive(Debug, Clone)]
struct ExecutorShared {
    engine: Arc<Engine>,
    backend: BackendName,
    default_timeout: u64,
}

impl ExecutorShared {
    fn new(tools: Tools, backend: BackendName, default_timeout: u64) -> ExecutorShared {
        ExecutorShared { engine: Arc::new(Engine::probe().with_tools(tools)), backend, default_timeout }
    }

    fn run(&self, call: Call) -> RunResult {
        let monitor = call.monitor.clone();
        let came = self.attempt(call);
        monitor.end(); // also where nothing was started
        came
    }

    fn attempt(&self, call: Call) -> RunResult {
        let Loaded { mut policy, form, .. } = config::load(&call.config_path)?;
        policy.backend = self.backend;
        if let Some(command) = call.command {
            if command.is_empty() {
                return Err("command: it names no program".into());
            }
            policy.command.argv = command;
        }
        if policy.command.argv.is_empty() {
            return Err(format!("{}: the configuration names no command", call.config_path.display()));
        }
        self.limit(&mut policy, form, call.timeout);
        // A configuration with text of its own keeps it.
        if !matches!(policy.command.stdin, Stdin::Text(_)) || !call.input.is_empty() {
            policy.command.stdin = Stdin::Caller;
        }
        policy.validate().map_err(|e| format!("{}: {e}", call.config_path.display()))?;
        cofferdam_engine::python_name::python3(&mut policy);
        let prepared = self.prepare(&mut policy).map_err(|failure| in_words(&failure))?;
        Ok(prepared.run(Io {
            input: Input::Bytes(call.input),
            output: call.output,
            cancel: call.cancel,
            monitor: call.monitor,
            ..Io::default()
        }))
    }

    /// The jail runs what nsjail cannot enforce as far as the policy requires.
    fn prepare(&self, policy: &mut Policy) -> Result<Prepared, Failure> {
        match self.engine.prepare_or_jail(policy) {
            Err(failure) if policy.backend == BackendName::Nsjail && failure.step.field().is_some() => {
                policy.backend = BackendName::Jail;
                self.engine.prepare(policy)
            }
            prepared => prepared,
        }
    }

    /// The caller's timeout comes first, then the configuration's; an older one without any gets the executor's.
    fn limit(&self, policy: &mut Policy, form: Form, timeout: Option<Duration>) {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1);
        if let Some(timeout) = timeout {
            policy.limits.wall_ms = ms(timeout);
        } else if form == Form::Legacy && policy.limits.wall_ms == Policy::base().limits.wall_ms {
            policy.limits.wall_ms = self.default_timeout.max(1).saturating_mul(1000);
        }
    }

    fn start(&self, call: Call) -> Handle {
        let (shared, cancel, monitor) = (self.clone(), call.cancel.clone(), call.monitor.clone());
        Handle::start(cancel, monitor, move || shared.run(call))
    }

    async fn execute(&self, config_path: &Path, input: &str) -> Result<ExecutionResult, String> {
        let (shared, call) = (self.clone(), Call::new(config_path, input.as_bytes()));
        ExecutionResult::of(Task::new(move || shared.start(call)).await?)
    }
}

macro_rules! executor {
    ($name:ident, $text:literal) => {
        impl $name {
            /// Runs it and waits for its end, on this thread.
            ///
            /// # Errors
            /// The configuration cannot be used, or nothing could be started.
            pub fn execute_sync(&self, config_path: &Path, input: &str) -> Result<ExecutionResult, String> {
                ExecutionResult::of(self.0.run(Call::new(config_path, input.as_bytes()))?)
            }

            /// Runs a call and waits for its end, on this thread. Returns the full outcome.
            ///
            /// # Errors
            /// The configuration cannot be used.
            pub fn run(&self, call: Call) -> RunResult {
                self.0.run(call)
            }

            /// Starts a call on a thread of its own.
            pub fn start(&self, call: Call) -> Handle {
                self.0.start(call)
            }

            /// Seconds that an execution may take when its configuration does not say.
            pub fn default_timeout(&self) -> u64 {
                self.0.default_timeout
            }
        }

        #[async_trait]
        impl SandboxExecutor for $name {
            fn name(&self) -> &str {
                $text
            }

            async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String> {
                self.0.execute(config_path, input).await
            }
        }
    };
}

/// Runs configurations by nsjail where it is installed and holds what they require, and else by the jail, which does.
#[derive(Debug, Clone)]
pub struct NsJailExecutor(ExecutorShared);

/// Runs configurations by macOS's Seatbelt.
#[derive(Debug, Clone)]
pub struct SeatbeltExecutor(ExecutorShared);

/// Runs configurations by Cofferdam's own jail.
#[derive(Debug, Clone)]
pub struct JailExecutor(ExecutorShared);

impl NsJailExecutor {
    /// nsjail at this path, or on `PATH`; seconds that an execution may take when its configuration does not say.
    pub fn new(nsjail_path: Option<PathBuf>, default_timeout: u64) -> NsJailExecutor {
        let mut tools = Tools::from_environment();
        tools.nsjail = nsjail_path.or(tools.nsjail);
        NsJailExecutor(ExecutorShared::new(tools, BackendName::Nsjail, default_timeout))
    }

    /// Reads an older `nsjail.json`; unknown keys are passed over.
    ///
    /// # Errors
    /// It cannot be read, or is invalid; the text names the file and the position.
    pub fn load_config(&self, config_path: &Path) -> Result<NsJailJsonConfig, String> {
        let text =
            std::fs::read_to_string(config_path).map_err(|e| format!("cannot read {}: {e}", config_path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", config_path.display()))
    }
}

impl Default for NsJailExecutor {
    fn default() -> NsJailExecutor {
        NsJailExecutor::new(None, DEFAULT_TIMEOUT)
    }
}

impl SeatbeltExecutor {
    /// Seconds that an execution may take when its configuration does not say.
    pub fn new(default_timeout: u64) -> SeatbeltExecutor {
        SeatbeltExecutor(ExecutorShared::new(Tools::from_environment(), BackendName::Seatbelt, default_timeout))
    }
}

impl JailExecutor {
    /// Seconds that an execution may take when its configuration does not say.
    pub fn new(default_timeout: u64) -> JailExecutor {
        JailExecutor(ExecutorShared::new(Tools::from_environment(), BackendName::Auto, default_timeout))
    }
}

executor!(NsJailExecutor, "nsjail");
executor!(SeatbeltExecutor, "seatbelt");
executor!(JailExecutor, "jail");

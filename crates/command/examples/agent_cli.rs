//! An agent that asks a model's command-line tool: `agent_cli CONFIG [DATA_DIR] [PROMPT]`.
//!
//! It reads the mode from its configuration, makes the workspace in its data directory, and starts the tool there, confined:
//! whatever the model makes of the prompt, nothing is written anywhere else. The mode's constraint goes along with the
//! prompt, so that the model does not try in vain.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use cofferdam_command::{SandboxConfig, SandboxError, sandboxed_command};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(default)]
    sandbox: SandboxConfig,
    provider: Provider,
}

#[derive(Debug, Deserialize)]
struct Provider {
    program: String,
    #[serde(default)]
    arguments: Vec<String>,
}

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("agent_cli: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<u8, Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let config = PathBuf::from(arguments.next().ok_or("usage: agent_cli CONFIG [DATA_DIR] [PROMPT]")?);
    let text = std::fs::read_to_string(&config).map_err(|error| format!("{}: {error}", config.display()))?;
    let config: Config = toml::from_str(&text).map_err(|error| format!("{}: {error}", config.display()))?;
    let data_dir = match arguments.next() {
        Some(path) => std::path::absolute(path)?,
        None => PathBuf::from(std::env::var_os("HOME").ok_or("HOME is not set")?).join(".agent"),
    };
    let prompt =
        arguments.next().map_or_else(|| "What can you see?".into(), |text| text.to_string_lossy().into_owned());

    let answer = ask(&config, &data_dir, &prompt).await?;
    println!("mode: {}", config.sandbox.mode.display_name());
    println!("{answer}");
    Ok(0)
}

/// What the tool answers.
async fn ask(config: &Config, data_dir: &Path, prompt: &str) -> Result<String, Failure> {
    let workspace = data_dir.join("workspace");
    std::fs::create_dir_all(&workspace)?;
    let mode = config.sandbox.mode;
    let constraint = mode.prompt_constraint(&workspace.display().to_string());
    let prompt = [Some(prompt.to_owned()), constraint].into_iter().flatten().collect::<Vec<_>>().join("\n\n");

    let mut command = sandboxed_command(&config.provider.program, mode, data_dir);
    command.args(&config.provider.arguments).arg(prompt).current_dir(&workspace);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().map_err(|error| SandboxError::of_spawn(&command, error))?;
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", config.provider.program, output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

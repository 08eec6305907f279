//! A service of tokio's: `service DATA_DIR PROGRAM [ADDRESS]` answers each line that a client sends with what the program,
//! confined, makes of it. Many at once, each with a time limit; the service itself keeps all its rights.
//!
//! What holds is looked at once, before it listens: where something cannot be held, it does not start. Each program is
//! spawned from a confined process, so that a service of many gigabytes starts one as fast as a small one.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_command::{CommandNetwork, Confined};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The longest that a program may take.
const LIMIT: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("service: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (data, program, address) = match arguments.as_slice() {
        [data, program] => (data, program, "127.0.0.1:0"),
        [data, program, address] => (data, program, address.as_str()),
        _ => return Err("usage: service DATA_DIR PROGRAM [ADDRESS]".into()),
    };
    let confined = Arc::new(confined(program, &PathBuf::from(data)));
    let (_, enforcement) = (*confined).clone().command()?;
    eprint!("{enforcement}");
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (client, _) = listener.accept().await?;
        let confined = confined.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(client, &confined).await {
                eprintln!("service: {error}");
            }
        });
    }
}

/// What every client's program is held by: no network, and nothing written but below the data directory.
fn confined(program: &str, data: &Path) -> Confined {
    Confined::new(program).data_dir(data).network(CommandNetwork::None)
}

async fn serve(client: TcpStream, confined: &Confined) -> Result<(), Failure> {
    let (lines, mut answers) = client.into_split();
    let mut lines = BufReader::new(lines).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match tokio::time::timeout(LIMIT, answer(confined, &line)).await {
            Ok(answer) => answer?,
            Err(_) => format!("took more than {} s\n", LIMIT.as_secs()).into_bytes(),
        };
        answers.write_all(&answer).await?;
    }
    Ok(())
}

/// Gives the program a line and takes what it prints. A future that is dropped ends the program.
async fn answer(confined: &Confined, line: &str) -> Result<Vec<u8>, Failure> {
    let (mut child, _) = confined.clone().spawn(|command| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    })?;
    let mut input = child.stdin.take().ok_or("no stdin")?;
    // A program that reads nothing is no error of ours.
    match input.write_all(format!("{line}\n").as_bytes()).await {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => drop(input),
    }
    Ok(child.wait_with_output().await?.stdout)
}

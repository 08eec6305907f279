//! `cofferdam-serve`: the helper program that `cofferdam mcp` executes. Reads its one argument, and serves.

use std::process::ExitCode;

use cofferdam_config::serve::Serve;
use cofferdam_policy::text::paragraph;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// The exit code when the server cannot start, as the command's own.
const REFUSED: u8 = 125;

fn main() -> ExitCode {
    cofferdam_engine::process_limits::adapt();
    let mut arguments = std::env::args_os().skip(1);
    let serve = match (arguments.next().and_then(|argument| argument.into_string().ok()), arguments.next()) {
        (Some(argument), None) => Serve::from_argument(&argument),
        _ => Err("one argument is expected, which the command writes".into()),
    };
    let serve = match serve {
        Ok(serve) => serve,
        Err(problem) => {
            eprintln!("cofferdam-serve: {}\nhint: start it by the command: cofferdam mcp", paragraph(&problem));
            return ExitCode::from(REFUSED);
        }
    };
    log(serve.verbose);
    match cofferdam_server::serve(&serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = error.to_string();
            match text.rsplit_once("\nhint: ") {
                Some((message, hint)) => eprintln!("cofferdam: {}\nhint: {}", paragraph(message), paragraph(hint)),
                None => eprintln!("cofferdam: {}", paragraph(&text)),
            }
            ExitCode::from(REFUSED)
        }
    }
}

/// Logs to standard error. Below `error` the protocol's library logs whole messages, with code in them.
fn log(verbose: bool) {
    let own = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let targets = Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::ERROR);
    tracing_subscriber::registry().with(layer.with_filter(targets.with_target("cofferdam_server", own))).init();
}

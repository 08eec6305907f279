//! `cofferdam-serve`: the helper program that `cofferdam mcp` becomes. Reads its one argument, and serves.

use std::process::ExitCode;

use cofferdam_config::serve::Serve;
use cofferdam_policy::text::paragraph;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// What the command itself says when it refuses.
const REFUSED: u8 = 125;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let said = match (arguments.next().and_then(|argument| argument.into_string().ok()), arguments.next()) {
        (Some(argument), None) => Serve::from_argument(&argument),
        _ => Err("one argument is expected, which the command writes".into()),
    };
    let serve = match said {
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

/// What is said goes to standard error. The library of the protocol says whole messages below `info`, with code in them:
/// it is held to warnings.
fn log(verbose: bool) {
    let own = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    let targets = Targets::new().with_default(LevelFilter::WARN).with_target("rmcp", LevelFilter::ERROR);
    tracing_subscriber::registry().with(layer.with_filter(targets.with_target("cofferdam_server", own))).init();
}

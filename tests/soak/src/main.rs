//! `soak kills ROUNDS [SEED]` and `soak load SANDBOXES SECONDS [SEED]`: one long run, and what came out, as lines of a table.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cofferdam_soak::{kills, load};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let numbers: Option<Vec<u64>> = words.iter().skip(1).map(|word| word.parse().ok()).collect();
    let begun = Instant::now();
    let result = match (words.first().copied(), numbers.as_deref()) {
        (Some("kills"), Some([rounds, rest @ ..])) if rest.len() < 2 => {
            kills::run(*rounds, rest.first().copied().unwrap_or(1)).map(|report| {
                println!("{} kills, {} of them too late", report.rounds, report.too_late);
                report.killed.iter().for_each(|(what, count)| println!("  {count:>6}  {what}"));
            })
        }
        (Some("load"), Some([at_once, seconds, rest @ ..])) if rest.len() < 2 => {
            load::run(*at_once, Duration::from_secs(*seconds), rest.first().copied().unwrap_or(1)).map(|report| {
                println!(
                    "{} runs, {at_once} at once, {} connections, all in their outcomes",
                    report.runs, report.connections
                );
                report.endings.iter().for_each(|(what, count)| println!("  {count:>6}  {what}"));
                println!("  descriptors, threads, KiB: {:?} then {:?}", report.resources[0], report.resources[1]);
            })
        }
        _ => Err("usage: soak kills ROUNDS [SEED] | soak load SANDBOXES SECONDS [SEED]".to_owned()),
    };
    match result {
        Ok(()) => {
            println!("nothing was left or lost in {:.0} s", begun.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

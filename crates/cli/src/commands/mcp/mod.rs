//! `cofferdam mcp`: parses the options of the MCP server, and executes the helper program that serves.
//!
//! Knows nothing of the protocol. Standard input and output become the helper's.

mod install;
mod server_program;

use std::os::unix::process::CommandExt as _;

use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::serve::{Serve, TOOLS};

use crate::args::config::config_option;
use crate::call::audit_trail;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// The arguments of `mcp`.
pub(super) fn command(command: Command) -> Command {
    let arg = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let count = || RangedU64ValueParser::<usize>::new().range(1..=4096);
    command
        .about("Serve environments to agents over MCP, on standard input and output or HTTP")
        .after_help(
            "The one tool is `run`, with code and the name of an environment. Standard output is the protocol's; what \
             the server has to say goes to standard error. SIGHUP, or cofferdam environment reload, reads the \
             definitions again, as happens by itself when they change.",
        )
        .arg(config_option())
        .arg(arg("http", "ADDRESS:PORT").help("Listen here for streamable HTTP, at /mcp").long_help(
            "Listen here for streamable HTTP, at /mcp. Callers need the bearer token. What is no loopback address \
             needs --token-file and --allow-host",
        ))
        .arg(
            arg("token-file", "FILE")
                .requires("http")
                .help("File with the bearer token; made when it is not there")
                .long_help(
                    "File with the bearer token; made when it is not there, for its owner alone. Default: a new token \
                     for each start, printed on standard error",
                ),
        )
        .arg(
            arg("allow-host", "NAME")
                .requires("http")
                .action(ArgAction::Append)
                .help("A name under which callers reach the server, besides loopback's"),
        )
        .arg(
            arg("allow-origin", "ORIGIN")
                .requires("http")
                .action(ArgAction::Append)
                .help("An origin whose pages may call, as https://app.example:443; none by default"),
        )
        .arg(
            arg("tools", "NAME,...")
                .value_delimiter(',')
                .value_parser(TOOLS.to_vec())
                .action(ArgAction::Append)
                .hide_possible_values(true)
                .help(
                    "Offer these tools besides run: upload and download, for files of a session; list, of environments; sessions, to see and end one's own",
                ),
        )
        .arg(
            arg("max-runs", "N")
                .value_parser(count())
                .help("Most runs at a time")
                .long_help("Most runs at a time. Default: two for each processor"),
        )
        .arg(
            arg("max-queue", "N")
                .value_parser(count())
                .help("Most calls that wait for a run to end")
                .long_help("Most calls that wait for a run to end; further ones are refused until later. Default: 64"),
        )
        .arg(
            arg("early", "N")
                .value_parser(clap::value_parser!(u8).range(..=1))
                .help("Interpreters that are started before their calls, for each environment in use: 1 or 0")
                .long_help(
                    "Interpreters that are started before their calls, for each environment in use: 1 or 0. One is used \
                     for one call and ends with it. Default: 1",
                ),
        )
        .arg(
            arg("audit-trail", "DIR")
                .help("Record runs, sessions and their calls in the audit trail of DIR")
                .long_help(
                    "Record runs, sessions and their calls in the audit trail of DIR, durably: what cannot be recorded does \
                     not start. No interpreter is started before its call then. Default: $COFFERDAM_AUDIT, or no trail",
                ),
        )
        .arg(
            Arg::new("verbose")
                .long("verbose")
                .short('v')
                .action(ArgAction::SetTrue)
                .help("Say more on standard error; never the code"),
        )
        .args_conflicts_with_subcommands(true)
        .subcommand(install::command())
}

/// The server's settings, from the options.
fn settings(matches: &ArgMatches, caller: &Caller) -> Serve {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let texts = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
    let mut tools: Vec<String> = texts("tools");
    tools.sort_unstable();
    tools.dedup();
    Serve {
        config: text("config"),
        http: text("http"),
        token_file: text("token-file"),
        allow_hosts: texts("allow-host"),
        allow_origins: texts("allow-origin"),
        tools,
        max_runs: matches.get_one("max-runs").copied(),
        max_queue: matches.get_one("max-queue").copied(),
        early: matches.get_one("early").copied(),
        audit_trail: audit_trail::named(matches.get_one::<String>("audit-trail"), caller),
        verbose: matches.get_flag("verbose"),
    }
}

/// Becomes the server, or performs `mcp install`.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let caller = Caller::observe()?;
    if let Some(("install", matches)) = matches.subcommand() {
        return install::run(matches, &caller);
    }
    let program = server_program::path(&caller);
    let error = std::process::Command::new(&program).arg(settings(matches, &caller).to_argument()).exec();
    Err(CliRefusal::new("server", format!("cannot start {}: {error}", program.display())).hint(server_program::hint()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Serve, clap::Error> {
        let words = std::iter::once("mcp").chain(words.iter().copied());
        command(Command::new("mcp")).try_get_matches_from(words).map(|matches| settings(&matches, &Caller::default()))
    }

    #[test]
    fn options_become_the_servers_settings() {
        assert_eq!(parsed(&[]).unwrap(), Serve::default());
        let all = parsed(&[
            "--http",
            "127.0.0.1:8800",
            "--token-file",
            "t",
            "--allow-host",
            "a",
            "--allow-host",
            "b",
            "--allow-origin",
            "https://o:443",
            "--tools",
            "upload,list",
            "--tools",
            "list,download",
            "--max-runs",
            "2",
            "--max-queue",
            "9",
            "--early",
            "0",
            "-v",
            "--config",
            "c.toml",
        ])
        .unwrap();
        assert_eq!(all.tools, ["download", "list", "upload"]);
        assert_eq!((all.max_runs, all.max_queue, all.early, all.verbose), (Some(2), Some(9), Some(0), true));
        assert_eq!(all.allow_hosts, ["a", "b"]);
        assert_eq!((all.http.as_deref(), all.config.as_deref()), (Some("127.0.0.1:8800"), Some("c.toml")));
    }

    #[test]
    fn trail_comes_from_the_option_or_else_the_variable() {
        let caller = |variable: Option<&str>| Caller {
            cwd: "/w".into(),
            variables: variable.map(|dir| ("COFFERDAM_AUDIT".to_owned(), dir.to_owned())).into_iter().collect(),
            ..Caller::default()
        };
        let trail = |variable, words: &[&str]| {
            let words = std::iter::once("mcp").chain(words.iter().copied());
            settings(&command(Command::new("mcp")).try_get_matches_from(words).unwrap(), &caller(variable)).audit_trail
        };
        assert_eq!(trail(None, &[]), None);
        assert_eq!(trail(Some(""), &[]), None, "an empty variable names none");
        assert_eq!(trail(Some("/a"), &[]).as_deref(), Some("/a"));
        assert_eq!(trail(Some("a"), &[]).as_deref(), Some("/w/a"), "the server starts in any directory");
        assert_eq!(trail(Some("/a"), &["--audit-trail", "/b"]).as_deref(), Some("/b"), "the option wins");
    }

    #[test]
    fn invalid_options_are_refused() {
        for words in [
            &["--token-file", "t"][..],
            &["--tools", "everything"],
            &["--max-runs", "0"],
            &["--early", "2"],
            &["extra"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}

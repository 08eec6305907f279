//! `cofferdam agent`: runs a coding agent in a sandbox, with the options of `run` that it needs.

use clap::{Arg, ArgMatches, Command};
use cofferdam_config::environments::discover::HostTree;
use cofferdam_engine::{Engine, ExpectedUse};
use cofferdam_policy::text::one_line;

use crate::args::agents::{AGENTS, CodingAgent, agent};
use crate::args::sandbox;
use crate::call::agent::{AgentCall, make_state};
use crate::call::passed_over::passed_over;
use crate::call::{self, OF_NO_AGENT, is_given};
use crate::caller::Caller;
use crate::execute::execute;
use crate::outcome::presentation::Presentation;
use crate::outcome::refusal_report;
use crate::output::progress;
use crate::output::stderr::print_note;
use crate::output::stdout::print;
use crate::refusal::CliRefusal;

/// The arguments of `agent`.
pub(super) fn command(command: Command, full: bool) -> Command {
    let command = sandbox::arguments(command, full);
    // A profile is none of an agent's, and neither are its options.
    let hidden = OF_NO_AGENT.iter().chain(&["set", "allow-import", "trust-profile"]);
    hidden
        .fold(command, |command, name| command.mut_arg(name, |option| option.hide(true)))
        .about("Run a coding agent in a sandbox")
        .override_usage("cofferdam agent [OPTIONS] AGENT [-- ARGS]...\n       cofferdam agent list")
        .arg(
            Arg::new("program")
                .value_name("AGENT")
                .num_args(0..)
                .trailing_var_arg(true)
                .hide_short_help(true)
                .long_help("claude, codex, gemini, aider, opencode or goose, and its arguments; `list` lists them"),
        )
        .after_long_help(
            "The agent may write the working directory (--here=cow: a copy) and reach the API of its models. It gets its key \
             from your environment, or its login from your home. Its sessions and history in this project are kept between \
             runs. Your settings for it are read-only, and so are the files in the project that control agents. Its permission \
             prompts are off, because the sandbox enforces the limits. There is no time limit. Commands that the agent runs \
             can read its key.\n\n\
             --dry-run prints the options of `run` that this is short for. Other options of `run` can be added.\n\n\
             cofferdam agent claude\n\
             cofferdam agent --allow @pypi claude -- -p 'Write the tests that are missing'\n\
             cofferdam agent --here=cow --keep-changes changes codex",
        )
}

/// Runs the agent and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let words: Vec<String> = matches.get_many::<String>("program").into_iter().flatten().cloned().collect();
    let (name, rest) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let caller = Caller::observe()?;
    if name == "list" && rest.is_empty() {
        return print(&list(&caller)).map(|()| 0);
    }
    let presentation = Presentation::of_sandbox(matches);
    let arguments = rest.strip_prefix(&["--".to_owned()][..]).unwrap_or(rest);
    inside(matches, name, arguments, &caller, presentation)
        .or_else(|refusal| refusal_report::refused_run(refusal, presentation))
}

fn inside(
    matches: &ArgMatches,
    name: &str,
    arguments: &[String],
    caller: &Caller,
    presentation: Presentation,
) -> Result<i32, CliRefusal> {
    if name.is_empty() {
        return Err(
            CliRefusal::new("arguments", "no agent was named").hint("cofferdam agent claude, or cofferdam agent list")
        );
    }
    let agent = agent(name).map_err(|message| CliRefusal::new("arguments", message).split_hint())?;
    if !is_installed(agent, caller) {
        let message = format!("{} is not installed: no program of that name is on the PATH", agent.name);
        if !presentation.dry_run {
            return Err(CliRefusal::new("agent", message).hint(agent.install).code(127));
        }
        print_note(&message, Some(agent.install));
    }
    let here = !is_given(matches, "here");
    if here {
        let fits = caller.require_project().and_then(|()| caller.require_no_home());
        fits.map_err(|message| CliRefusal::new("arguments", message).split_hint())?;
    }
    let exists = |path: &str| std::fs::symlink_metadata(path).is_ok();
    if !presentation.dry_run {
        make_state(agent, caller)?;
    }
    let called = AgentCall::new(agent, caller, here, &exists)?;
    called.keep_places(caller)?;
    let call = call::of_agent(matches, caller, &HostTree, &called, arguments)?;
    if let Some((first, used)) = passed_over(&call.policy, rustix::process::geteuid().is_root()) {
        let message = format!(
            "{} cannot be reached by the sandbox's user, and {} would run in its place",
            one_line(&first),
            one_line(&used)
        );
        return Err(CliRefusal::new("agent", message)
            .hint("start it as a user of its own, or move the program to where everybody may enter"));
    }
    if !presentation.json && !presentation.quiet {
        print_note(&called.summary(&call.policy, caller), None);
        called.left_out.iter().for_each(|left_out| print_note(left_out, None));
        if let Some((lacks, hint)) = called.lacks_login(caller) {
            print_note(&lacks, Some(&hint));
        }
    }
    let engine = Engine::for_own_process(ExpectedUse::Anything).on_progress(progress::reporter(presentation.quiet));
    execute(&engine, call, caller, presentation)
}

/// Whether a program of the agent's name is on the caller's PATH.
fn is_installed(agent: &CodingAgent, caller: &Caller) -> bool {
    let path = caller.variable("PATH").unwrap_or_default();
    path.split(':')
        .filter(|directory| directory.starts_with('/'))
        .any(|directory| std::fs::metadata(format!("{directory}/{}", agent.name)).is_ok_and(|about| about.is_file()))
}

/// The table of `list`.
fn list(caller: &Caller) -> String {
    let mut text = format!("{:<10}{:<14}{:<15}{:<32}KEY\n", "AGENT", "", "INSTALLED", "HOSTS");
    for agent in AGENTS {
        let installed = if is_installed(agent, caller) { "yes" } else { "no" };
        let keys = agent.keys.join(" or ");
        text += &format!("{:<10}{:<14}{installed:<15}{:<32}{keys}\n", agent.name, agent.title, agent.hosts.join(" "));
    }
    text
}

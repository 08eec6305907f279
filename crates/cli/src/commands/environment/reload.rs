//! `cofferdam environment reload`: makes every running server of this user read its definitions again.
//!
//! Servers notice changes by themselves; this confirms that they have. Exit code: 0, or 1 when a server did not.

use cofferdam_config::server_control::{RELOAD, ask, directory};
use serde::Serialize;

use crate::call::environment::surroundings;
use crate::caller::Caller;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

#[derive(Serialize)]
struct ReloadRow {
    pid: u32,
    reloaded: bool,
    answer: String,
}

/// Asks all servers, and prints the answer of each.
pub(super) fn run(caller: &Caller, json: bool) -> Result<i32, CliRefusal> {
    let around = surroundings(caller);
    let asked = ask(&around, RELOAD).map_err(|error| {
        CliRefusal::new("server", format!("cannot ask the servers in {}: {error}", directory(&around).display()))
            .hint("kill -HUP PID has a server read its definitions again as well")
    })?;
    let rows: Vec<ReloadRow> = asked
        .into_iter()
        .map(|one| {
            let reloaded = one.answer.as_ref().is_ok_and(|answer| !answer.starts_with("refused"));
            ReloadRow { pid: one.pid, reloaded, answer: one.answer.unwrap_or_else(|error| error) }
        })
        .collect();
    let code = i32::from(!rows.iter().all(|row| row.reloaded));
    if json {
        return print_json(&rows).map(|()| code);
    }
    let count = rows.iter().filter(|row| row.reloaded).count();
    let mut text: String = rows.iter().map(|row| format!("{}: {}\n", row.pid, printable(&row.answer))).collect();
    text.push_str(&format!("{count} of {} running servers have read the definitions again\n", rows.len()));
    print(&text).map(|()| code)
}

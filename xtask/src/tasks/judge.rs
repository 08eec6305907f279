//! Whether what was seen is what a task wants. Looks at data, runs nothing.

use super::data::Task;
use crate::parts::plain;

/// How long a reason is, and each text in it.
const LONGEST: usize = 300;

/// How a task went for one user.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// What was typed first held.
    First,
    /// The message came, and what it says held.
    Second,
    /// Something was not as wanted.
    Failed(String),
    /// It could not be tried.
    NotRun(String),
}

/// What a command showed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Its exit code, or 128 and the signal; `None` where it had to be ended.
    pub code: Option<i32>,
    /// Standard output, or what came at the terminal.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// What went wrong while it ran: its time was over, a text did not come.
    pub trouble: Option<String>,
    /// It ended before all keys were sent.
    pub early: bool,
}

impl Seen {
    /// Both streams have the text in neither's colours, or with them.
    fn shows(&self, text: &str) -> bool {
        [&self.out, &self.err].into_iter().any(|stream| {
            let unix = stream.replace("\r\n", "\n");
            unix.contains(text) || plain(&unix).contains(text)
        })
    }

    /// The lines of Cofferdam's own.
    fn own_lines(&self) -> Vec<String> {
        let lines = self.err.lines().chain(self.out.lines()).map(|line| plain(line.trim_end_matches('\r')));
        lines.filter(|line| line.starts_with("cofferdam:") || line.starts_with("hint:")).collect()
    }

    /// What the command said last, in one short line: of Cofferdam's own, else of standard error, else of the output.
    fn last(&self) -> String {
        let own = self.own_lines();
        let of = |stream: &str| {
            let lines = stream.lines().rev().map(|line| plain(line).trim().to_owned());
            // What a server logs in passing says nothing about the task.
            lines.into_iter().find(|line| !line.is_empty() && !line.contains(" INFO "))
        };
        let chosen = (!own.is_empty()).then(|| own.join(" / ")).or_else(|| of(&self.err)).or_else(|| of(&self.out));
        chosen.map_or("no output".to_owned(), |line| format!("`{}`", short(&line)))
    }
}

/// One line of bounded length.
pub(crate) fn short(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim();
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// Whether a line of Cofferdam's own has the task's message.
///
/// # Errors
/// None has: what was said instead.
pub(crate) fn message(task: &Task, seen: &Seen) -> Result<(), String> {
    if let Some(trouble) = &seen.trouble {
        return Err(format!("{trouble}: {}", seen.last()));
    }
    let Some(message) = &task.message else { return Ok(()) };
    if seen.own_lines().iter().any(|line| line.contains(message)) {
        return Ok(());
    }
    let code = seen.code.map_or("none".to_owned(), |code| code.to_string());
    Err(format!("no message `{}`; code {code}, {}", short(message), seen.last()))
}

/// Whether exit code and output are those of the task.
///
/// # Errors
/// They are not: what was wanted, and what was seen.
pub(crate) fn output(task: &Task, seen: &Seen) -> Result<(), String> {
    if let Some(trouble) = &seen.trouble {
        return Err(format!("{trouble}: {}", seen.last()));
    }
    if seen.early {
        let code = seen.code.map_or("none".to_owned(), |code| code.to_string());
        return Err(format!("ended with {code} before the last key: {}", seen.last()));
    }
    if let (Some(wanted), code) = (task.code, seen.code)
        && code != Some(wanted)
    {
        let code = code.map_or("none".to_owned(), |code| code.to_string());
        return Err(format!("code {code} instead of {wanted}: {}", seen.last()));
    }
    if let Some(text) = task.see.iter().find(|text| !seen.shows(text)) {
        return Err(format!("`{}` is not there: {}", short(text), seen.last()));
    }
    match task.not_see.iter().find(|text| seen.shows(text)) {
        Some(text) => Err(format!("`{}` is there: {}", short(text), seen.last())),
        None => Ok(()),
    }
}

/// Whether the shell afterwards succeeded.
///
/// # Errors
/// It did not.
pub(crate) fn after(script: &str, seen: &Seen) -> Result<(), String> {
    match (&seen.trouble, seen.code) {
        (None, Some(0)) => Ok(()),
        _ => Err(format!("afterwards `{}` failed: {}", short(script), seen.last())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(code: i32, out: &str, err: &str) -> Seen {
        Seen { code: Some(code), out: out.into(), err: err.into(), ..Seen::default() }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_code_that_is_not_named_may_be_any() {
        let task = Task { code: Some(3), ..Task::default() };
        assert_eq!(output(&task, &seen(3, "", "")), Ok(()));
        assert_eq!(output(&task, &seen(0, "x\n", "")).unwrap_err(), "code 0 instead of 3: `x`");
        assert_eq!(output(&Task::default(), &seen(9, "", "")), Ok(()));
    }

    #[test]
    fn texts_are_looked_for_in_both_streams_with_colours_and_without() {
        let task = Task { see: texts(&["out", "err", "a b", "\u{1b}[1m", "1\n2"]), ..Task::default() };
        let all = seen(0, "out a \u{1b}[1mb\u{1b}[0m 1\r\n2", "err");
        assert_eq!(output(&task, &all), Ok(()));
        assert_eq!(output(&task, &seen(0, "out", "")).unwrap_err(), "`err` is not there: `out`");
        let task = Task { not_see: texts(&["key"]), ..Task::default() };
        assert_eq!(output(&task, &all), Ok(()));
        assert_eq!(output(&task, &seen(0, "", "a k\u{1b}[1mey")).unwrap_err(), "`key` is there: `a key`");
    }

    #[test]
    fn a_message_stands_in_a_line_of_cofferdams_own() {
        let task = Task { message: Some("hint: --here".into()), ..Task::default() };
        assert_eq!(message(&task, &seen(1, "", "x\n\u{1b}[2mhint: --here or not\u{1b}[0m\n")), Ok(()));
        assert_eq!(message(&task, &seen(1, "hint: --here\r\n", "")), Ok(()), "at a terminal");
        let other = message(&task, &seen(1, "", "cofferdam: no\nsh: hint: --here\n")).unwrap_err();
        assert_eq!(other, "no message `hint: --here`; code 1, `cofferdam: no`");
        let part = Task { message: Some("is no project".into()), ..Task::default() };
        assert_eq!(message(&part, &seen(1, "", "cofferdam: / is no project\n")), Ok(()));
        assert!(message(&part, &seen(1, "", "/ is no project\n")).is_err());
    }

    #[test]
    fn what_had_to_be_ended_never_holds() {
        let mut late = seen(0, "", "");
        late.trouble = Some("not over after 5 s".into());
        assert_eq!(output(&Task::default(), &late).unwrap_err(), "not over after 5 s: no output");
        assert!(message(&Task::default(), &late).is_err());
        assert!(after("true", &late).is_err());
        let mut early = seen(0, "", "hint: x\n");
        early.early = true;
        assert!(output(&Task::default(), &early).unwrap_err().starts_with("ended with 0 before the last key"));
        assert_eq!(message(&Task { message: Some("x".into()), ..Task::default() }, &early), Ok(()));
    }

    #[test]
    fn the_shell_afterwards_must_succeed() {
        assert_eq!(after("test -f a", &seen(0, "", "")), Ok(()));
        assert_eq!(after("test -f a", &seen(1, "", "")).unwrap_err(), "afterwards `test -f a` failed: no output");
    }

    #[test]
    fn reasons_are_short() {
        assert_eq!(short("a\nb\u{1b}"), "a b");
        assert_eq!(short(&"é".repeat(400)).chars().count(), LONGEST + 1);
    }
}

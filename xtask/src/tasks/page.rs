//! docs/tasks.md: one line for each task, with what is typed and whether it works.

use super::data::{Task, User};
use super::judge::Verdict;
use super::{Results, totals};

/// How much of a command a line shows.
const LONGEST: usize = 110;

/// The page.
pub(super) fn page(tasks: &[Task], results: &Results, day: &str) -> String {
    let mut text = String::from(
        "# I want to …\n\n\
         What users want to do, what they type first, and what they type second where a message of the first asks for it. Each\n\
         line is a task of [tests/tasks](../tests/tasks/README.md), tried as root and as an unprivileged user by `cargo xtask\n\
         tasks --write`, which writes this page. `1st`: what is typed first works; `2nd`: its message says what to type, and that\n\
         works; `not run`: a program or service is not on the machine that tried it.\n\n",
    );
    text += &format!("Tried {day}.\n\n| | 1st | 2nd | fails | not run |\n|---|--:|--:|--:|--:|\n");
    for user in [User::Root, User::Unprivileged] {
        let [first, second, failed, not_run] = totals(results, user);
        text += &format!("| {} | {first} | {second} | {failed} | {not_run} |\n", called(user));
    }
    let mut file = "";
    for task in tasks {
        if task.file != file {
            file = &task.file;
            let heading = file.replace('-', " ");
            text += &format!(
                "\n## {heading}\n\n| I want to … | I type | and then | root | user |\n|---|---|---|---|---|\n"
            );
        }
        let [root, user] = [User::Root, User::Unprivileged].map(|user| word(results.get(&(task.id.clone(), user))));
        let then = task.then.as_deref().map(code).unwrap_or_default();
        text += &format!("| {} | {} | {then} | {root} | {user} |\n", task.wants.replace('|', "\\|"), code(&task.first));
    }
    text
}

fn called(user: User) -> &'static str {
    match user {
        User::Root => "root",
        User::Unprivileged => "an unprivileged user",
    }
}

fn word(verdict: Option<&Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::First) => "1st",
        Some(Verdict::Second) => "2nd",
        Some(Verdict::Failed(_)) => "**fails**",
        Some(Verdict::NotRun(_)) => "not run",
        None => "–",
    }
}

/// A command as code within a table.
fn code(command: &str) -> String {
    let mut line = command.trim().replace('\n', "; ");
    if let Some((at, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(at);
        line.push('…');
    }
    let line = line.replace('|', "\\|");
    if line.contains('`') { format!("`` {line} ``") } else { format!("`{line}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_a_line_with_both_results() {
        let task = |file: &str, id: &str, then: Option<&str>| Task {
            file: file.into(),
            id: id.into(),
            wants: format!("Want {id}"),
            first: format!("x | {id}"),
            then: then.map(str::to_owned),
            ..Task::default()
        };
        let results = Results::from([
            (("b".into(), User::Root), Verdict::First),
            (("b".into(), User::Unprivileged), Verdict::Failed("reason".into())),
            (("c".into(), User::Root), Verdict::Second),
        ]);
        let text = page(&[task("a-b", "b", None), task("d", "c", Some("y"))], &results, "2000-01-02");
        assert!(text.contains("\n## a b\n") && text.contains("Tried 2000-01-02."));
        assert!(text.contains("\n| Want b | `x \\| b` |  | 1st | **fails** |\n"), "{text}");
        assert!(text.contains("\n| Want c | `x \\| c` | `y` | 2nd | – |\n"), "{text}");
        assert!(text.contains("\n| root | 1 | 1 | 0 | 0 |\n"), "{text}");
    }

    #[test]
    fn code_is_cut_and_quoted() {
        assert_eq!(code("a `b`"), "`` a `b` ``");
        assert!(code(&"é".repeat(200)).ends_with("é…`"));
    }
}

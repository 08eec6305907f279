//! What was measured, as tables: printed, and written between markers of docs/performance.md and README.md. Text outside
//! the markers is a person's and stays.

use std::path::Path;

use super::stats::{Samples, Summary};
use crate::Result;

/// One measurement.
pub(crate) struct Section {
    /// The unit of its rows.
    pub unit: &'static str,
    /// The name of the row that ratios refer to.
    pub peer: &'static str,
    /// The candidates.
    pub rows: Vec<Row>,
    /// What was promised.
    pub goals: Vec<Goal>,
}

/// One candidate.
pub(crate) struct Row {
    /// As the table calls it.
    pub name: String,
    /// What was run.
    pub command: String,
    /// What came out, or why nothing did.
    pub result: std::result::Result<Summary, String>,
    /// Its median over that of the row it is compared with.
    pub ratio: Option<f64>,
}

/// A promise about a figure.
pub(crate) struct Goal {
    /// What the figure is.
    pub text: String,
    /// What was reached; `None` when it could not be measured.
    pub reached: Option<f64>,
    /// What must hold.
    pub bound: Bound,
    /// What is aimed at, in words.
    pub aim: &'static str,
}

/// Which side of a number is good.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Row {
    /// A row of samples.
    pub(crate) fn new(
        name: impl Into<String>,
        command: impl Into<String>,
        samples: std::result::Result<Samples, String>,
    ) -> Row {
        let result = samples.and_then(|samples| samples.summary().ok_or_else(|| "no samples".to_owned()));
        Row { name: name.into(), command: command.into(), result, ratio: None }
    }

    /// The median, where there is one.
    pub(crate) fn median(&self) -> Option<f64> {
        self.result.as_ref().ok().map(|summary| summary.median)
    }
}

impl Section {
    /// Sets every row's ratio to the peer's median.
    pub(crate) fn with_ratios(mut self) -> Section {
        let peer = self.rows.iter().find(|row| row.name == self.peer).and_then(Row::median);
        for row in &mut self.rows {
            row.ratio = row.median().zip(peer).map(|(median, peer)| median / peer);
        }
        self
    }

    /// The ratio of the row of that name.
    pub(crate) fn ratio(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.ratio
    }

    /// The section as Markdown.
    pub(crate) fn markdown(&self, machine: &str) -> String {
        let mut text = format!("{machine}\n\n| | median, {} | middle half | 99 % | ratio | n | command |\n", self.unit);
        text += "|---|--:|--:|--:|--:|--:|---|\n";
        for row in &self.rows {
            let command = if row.command.is_empty() { String::new() } else { format!("`{}`", row.command) };
            let ratio = row.ratio.map_or(String::new(), |ratio| format!("{} ×", figure(ratio)));
            text += &match &row.result {
                Ok(summary) => {
                    let Summary { count, median, low, high, p99 } = *summary;
                    let [median, low, high, p99] = [median, low, high, p99].map(figure);
                    format!("| {} | {median} | {low} – {high} | {p99} | {ratio} | {count} | {command} |\n", row.name)
                }
                Err(reason) => format!("| {} | not measured | | | | | {reason} |\n", row.name),
            };
        }
        if !self.goals.is_empty() {
            text += "\n";
        }
        for goal in &self.goals {
            text += &goal.markdown();
        }
        text
    }
}

impl Goal {
    /// One line of a list.
    pub(crate) fn markdown(&self) -> String {
        let (bound, met) = match self.bound {
            Bound::AtMost(most) => (format!("at most {}", figure(most)), self.reached.map(|reached| reached <= most)),
            Bound::AtLeast(least) => {
                (format!("at least {}", figure(least)), self.reached.map(|reached| reached >= least))
            }
        };
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not measured",
        };
        let reached = self.reached.map_or("–".to_owned(), figure);
        format!("- {}: **{reached}** (promised {bound}, aimed at {}): {verdict}\n", self.text, self.aim)
    }
}

/// Three significant digits.
/// Three digits of a number.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The machine and the day, in one line.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map_or("unknown".to_owned(), |rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let memory = after(&read("/proc/meminfo"), "MemTotal:");
    let gib = memory.split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1_048_576.0;
    let cpu = after(&read("/proc/cpuinfo"), "model name");
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
    let user = if crate::shell::uid() == Some(0) { "root" } else { "an unprivileged user" };
    format!(
        "Measured {} on Linux {kernel}, {cpus} CPUs ({cpu}), {gib:.0} GiB, as {user}; load before it {load}.",
        today()
    )
}

/// The day, as ISO 8601 writes it.
pub(crate) fn today() -> String {
    let days = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| i64::try_from(elapsed.as_secs() / 86_400).unwrap_or_default());
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02}")
}

/// The Gregorian date of a day counted from 1970-01-01: eras of 400 years, years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a file.
pub(crate) fn replace_block(file: &Path, name: &str, text: &str) -> Result {
    let old = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let new = with_block(&old, name, text).ok_or_else(|| format!("{} has no block `{name}`", file.display()))?;
    std::fs::write(file, new).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// What stands between the markers of that name.
#[cfg(test)]
pub(crate) fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let after = text.split_once(&format!("<!-- {name}:begin -->"))?.1;
    Some(after.split_once(&format!("<!-- {name}:end -->"))?.0.trim())
}

fn with_block(old: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let (before, rest) = old.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_changes() {
        let text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let new = with_block(text, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert_eq!(block(&new, "x"), Some("new"));
        assert_eq!(with_block(text, "y", "new"), None);
    }

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.1234, 1.234, 12.34, 123.4].map(figure), ["0.123", "1.23", "12.3", "123"]);
    }

    #[test]
    fn a_goal_that_is_missed_says_so() {
        let goal = |reached| Goal { text: "x".into(), reached, bound: Bound::AtMost(0.8), aim: "0.6" }.markdown();
        assert!(goal(Some(0.7)).ends_with(": met\n"));
        assert!(goal(Some(0.9)).ends_with("**not met**\n"));
        assert!(goal(None).ends_with("not measured\n"));
    }
}

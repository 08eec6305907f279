//! Argument patterns: how a line of arguments is written, what matches it, and the examples by which a rule is checked.
//! Pure.

use regex_lite::Regex;

use super::config::Rule;
use super::error::GuardError;

/// A rule whose pattern is compiled and has passed its own examples.
#[derive(Debug)]
pub(super) struct CheckedRule {
    /// The rule.
    pub rule: Rule,
    pattern: Option<Regex>,
}

impl CheckedRule {
    /// Compiles a rule's pattern and runs its examples.
    pub(crate) fn new(rule: &Rule) -> Result<CheckedRule, GuardError> {
        let command = || rule.command.clone();
        let Some(text) = &rule.args else {
            if rule.matches.is_empty() && rule.not_matches.is_empty() {
                return Ok(CheckedRule { rule: rule.clone(), pattern: None });
            }
            let reason = "examples without a pattern: add args = \"…\", or leave the examples out".into();
            return Err(GuardError::Rule { command: command(), reason });
        };
        let fail = |source| GuardError::Pattern { command: command(), pattern: text.clone(), source };
        Regex::new(text).map_err(fail)?; // by itself, so that no parenthesis of it closes ours
        let pattern = Regex::new(&format!(r"\A(?:{text})\z")).map_err(fail)?;
        for (examples, expected) in [(&rule.matches, true), (&rule.not_matches, false)] {
            for example in examples {
                let line = line(example);
                if pattern.is_match(&line) != expected {
                    let pattern = text.clone();
                    return Err(GuardError::Example { command: command(), pattern, line, matches: !expected });
                }
            }
        }
        Ok(CheckedRule { rule: rule.clone(), pattern: Some(pattern) })
    }

    /// Whether it allows these arguments.
    pub(crate) fn allows(&self, line: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(line))
    }
}

/// The line that patterns are matched against.
pub(super) fn line<S: AsRef<str>>(args: &[S]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let mut line = String::new();
    for arg in args.iter().map(AsRef::as_ref) {
        if !line.is_empty() {
            line.push(' ');
        }
        if !arg.is_empty() && arg.chars().all(plain) {
            line.push_str(arg);
        } else {
            line.push('\'');
            line.push_str(&arg.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(args: &str) -> Rule {
        Rule { command: "git".into(), args: Some(args.into()), ..Rule::default() }
    }

    #[test]
    fn a_pattern_has_to_match_the_whole_line() {
        let checked = CheckedRule::new(&rule("status|log( .*)?")).unwrap();
        for line in ["status", "log", "log --oneline"] {
            assert!(checked.allows(line), "{line}");
        }
        for line in ["", "status -s", "-c x=y status", "push; status", "status\n"] {
            assert!(!checked.allows(line), "{line}");
        }
    }

    #[test]
    fn no_argument_passes_for_two_and_none_closes_a_quote() {
        assert_eq!(line(&["log", "-1"]), "log -1");
        assert_eq!(line(&["log -1"]), "'log -1'");
        assert_eq!(line(&["", "a'b", "c"]), r"'' 'a'\''b' c");
        assert_eq!(line::<&str>(&[]), "");
        let checked = CheckedRule::new(&rule("commit -m '[^']*'")).unwrap();
        assert!(checked.allows(&line(&["commit", "-m", "two words"])));
        assert!(!checked.allows(&line(&["commit", "-m", "x' --amend '"])));
    }

    proptest! {
        #[test]
        fn different_arguments_are_different_lines(a in arguments(), b in arguments()) {
            prop_assert_eq!(a == b, line(&a) == line(&b));
        }

        #[test]
        fn a_line_has_a_bare_space_between_arguments_and_nowhere_else(args in arguments()) {
            let (mut quoted, mut bare) = (false, 0);
            let mut escaped = false;
            for c in line(&args).chars() {
                match c {
                    _ if escaped => escaped = false,
                    '\\' if !quoted => escaped = true,
                    '\'' => quoted = !quoted,
                    ' ' if !quoted => bare += 1,
                    _ => {}
                }
            }
            prop_assert_eq!(bare, args.len().saturating_sub(1));
            prop_assert!(!quoted && !escaped);
        }
    }

    fn arguments() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[ab '\\\\\n\"é-]{0,4}", 0..4)
    }

    #[test]
    fn invalid_or_group_closing_patterns_are_refused() {
        for bad in ["(", "a)|(b", "[", "*"] {
            assert!(matches!(CheckedRule::new(&rule(bad)), Err(GuardError::Pattern { .. })), "{bad}");
        }
    }

    #[test]
    fn examples_that_fail_refuse_the_rule() {
        let with = |matches: &[&str], not: &[&str]| {
            let words = |list: &[&str]| list.iter().map(|l| l.split(' ').map(str::to_owned).collect()).collect();
            CheckedRule::new(&Rule { matches: words(matches), not_matches: words(not), ..rule("status( -s)?") })
        };
        assert!(with(&["status", "status -s"], &["push", "status -s -s"]).is_ok());
        assert!(matches!(with(&["stat"], &[]), Err(GuardError::Example { matches: false, .. })));
        assert!(matches!(with(&[], &["status"]), Err(GuardError::Example { matches: true, .. })));
        let bare = Rule { matches: vec![vec!["x".into()]], ..Rule::any("git") };
        assert!(matches!(CheckedRule::new(&bare), Err(GuardError::Rule { .. })));
    }
}

//! A filter as the text of a Kafel policy, the language in which nsjail takes its system call filters.
//!
//! Says exactly what [`super::compile`] would compile, from the same decisions; what cannot be said there (user
//! notification, the exec gate) is refused with an errno instead. Calls are named by number, because Kafel knows only the
//! names of its own day and calls some of them otherwise than the kernel does. Source: Kafel's README.

use std::fmt::Write;

use super::levels::{Clause, Cond, Width};
use super::{Arch, Denials, RET_ALLOW, RET_ERRNO, RET_KILL_PROCESS, SeccompError, SeccompRequest, decisions, returned};

/// `__X32_SYSCALL_BIT`: an x32 process makes its calls by these numbers, and the kernel checks them as x86_64.
const X32: u32 = 0x4000_0000;
/// More calls than x32 has; Kafel joins neighbours, so that they cost one comparison.
const X32_CALLS: u32 = 640;

/// The policy as text, ending with its default: calls beyond the table get ENOSYS.
///
/// # Errors
/// As [`super::compile`], but for the length: Kafel's own compiler decides that.
pub fn policy(request: &SeccompRequest<'_>, arch: Arch) -> Result<String, SeccompError> {
    let denials = if request.denials == Denials::Kill { Denials::Kill } else { Denials::Errno };
    let request = SeccompRequest { denials, ..*request };
    let mut blocks: Vec<(String, Vec<String>)> = Vec::new();
    let mut plain: Vec<(String, Vec<String>)> = Vec::new();
    for (number, name, decision) in decisions(&request, arch)? {
        let otherwise = action(returned(decision.otherwise, &request));
        let mut clauses: Vec<(&Clause, String)> =
            decision.clauses.iter().map(|clause| (clause, action(returned(clause.effect, &request)))).collect();
        while clauses.last().is_some_and(|(_, last)| *last == otherwise) {
            clauses.pop();
        }
        // The first rule that matches decides, so a call with conditions keeps the order of its clauses.
        for (clause, what) in &clauses {
            blocks.push((what.clone(), vec![rule(number, name, &clause.when)]));
        }
        match plain.iter_mut().find(|(what, _)| *what == otherwise) {
            Some((_, calls)) => calls.push(rule(number, name, &[])),
            None => plain.push((otherwise, vec![rule(number, name, &[])])),
        }
    }
    if arch == Arch::X86_64 {
        let numbers = (0..X32_CALLS).map(|number| format!("SYSCALL[{}]", X32 + number));
        blocks.push(("KILL_PROCESS".into(), vec![numbers.collect::<Vec<_>>().join(", ")]));
    }
    let mut text = String::from("POLICY cofferdam {\n");
    let all: Vec<String> = blocks
        .iter()
        .chain(&plain)
        .map(|(what, calls)| format!("  {what} {{\n    {}\n  }}", calls.join(",\n    ")))
        .collect();
    text.push_str(&all.join(",\n"));
    text.push_str("\n}\nUSE cofferdam\nDEFAULT ERRNO(38)\n");
    Ok(text)
}

fn action(value: u32) -> String {
    match value {
        RET_ALLOW => "ALLOW".into(),
        RET_KILL_PROCESS => "KILL_PROCESS".into(),
        errno if errno & 0xffff_0000 == RET_ERRNO => format!("ERRNO({})", errno & 0xffff),
        // There is no listener: refused, as a listener would.
        _ => "ERRNO(1)".into(),
    }
}

fn rule(number: u32, name: &str, when: &[Cond]) -> String {
    if when.is_empty() {
        return format!("SYSCALL[{number}] /* {name} */");
    }
    let most = when.iter().map(|cond| cond.arg).max().unwrap_or(0);
    let names: Vec<String> = (0..=most).map(|n| format!("a{n}")).collect();
    let conditions: Vec<String> = when.iter().map(condition).collect();
    format!("SYSCALL[{number}]({}) {{ {} }} /* {name} */", names.join(", "), conditions.join(" && "))
}

fn condition(cond: &Cond) -> String {
    let op = cond.op.symbol();
    // Kafel compares whole arguments; what the kernel does not read of one is masked off.
    let read = match cond.width {
        Width::Bits32 => u64::from(u32::MAX),
        Width::Bits64 => u64::MAX,
    };
    let (mask, value) = (cond.mask & read, cond.value & read);
    let mut text = String::new();
    let written = if mask == u64::MAX {
        write!(text, "a{} {op} {value:#x}", cond.arg)
    } else {
        write!(text, "(a{} & {mask:#x}) {op} {value:#x}", cond.arg)
    };
    written.map_or_else(|_| String::new(), |()| text)
}

#[cfg(test)]
mod tests {
    use super::super::{FilterRule, RuleAction, SyscallLevel};
    use super::*;

    fn request(level: SyscallLevel, rules: &[FilterRule]) -> SeccompRequest<'_> {
        SeccompRequest { rules, ..SeccompRequest::of(level) }
    }

    #[test]
    fn what_the_level_allows_is_allowed_and_what_it_refuses_is_not() {
        let text = policy(&request(SyscallLevel::Standard, &[]), Arch::X86_64).unwrap();
        let allowed = text.split("  ALLOW {").find(|block| block.contains("/* read */")).unwrap();
        let allowed = allowed.split('}').next().unwrap();
        assert!(allowed.contains("SYSCALL[0] /* read */"), "{text}");
        assert!(!allowed.contains("/* ptrace */"), "{text}");
        assert!(text.contains("SYSCALL[101] /* ptrace */"), "{text}");
        assert!(text.ends_with("USE cofferdam\nDEFAULT ERRNO(38)\n"));
    }

    #[test]
    fn conditions_look_only_at_what_the_kernel_reads() {
        let text = policy(&request(SyscallLevel::Basic, &[]), Arch::X86_64).unwrap();
        assert!(text.contains("(a1 & 0xffffffff) == 0x5412"), "TIOCSTI, an int: {text}");
    }

    #[test]
    fn a_rule_of_the_policy_comes_before_the_level() {
        let rules = [FilterRule { syscalls: vec!["getpriority".into()], action: RuleAction::Kill, when: Vec::new() }];
        let text = policy(&request(SyscallLevel::Standard, &rules), Arch::Aarch64).unwrap();
        let killed = text.split("  KILL_PROCESS {").find(|block| block.contains("getpriority")).unwrap();
        assert!(killed.split('}').next().unwrap().contains("SYSCALL[141] /* getpriority */"), "{text}");
    }
}

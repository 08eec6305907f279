//! What `python` means in a profile: `python3`, where the sandbox has only that.
//!
//! Older profiles name `python`, which many systems do not have any more. Only a name that is nowhere on the sandbox's
//! own PATH is replaced, and only by one that is: nothing else that a sandbox holds changes with it.

use cofferdam_policy::Policy;

use crate::backends::layout::shown;
use crate::plan::facts::{Facts, HostFacts};

/// Where the name of the program stands: behind `env`, as exported configurations have it, or first.
fn place(argv: &[String]) -> usize {
    usize::from(argv.first().is_some_and(|first| matches!(first.as_str(), "env" | "/usr/bin/env" | "/bin/env")))
}

/// Makes the program `python` of a policy `python3` where the sandbox has no `python` and has a `python3`.
pub fn python3(policy: &mut Policy) {
    let at = place(&policy.command.argv);
    if policy.command.argv.get(at).is_some_and(|name| name == "python")
        && has_only_python3(policy, &HostFacts::default())
    {
        policy.command.argv[at] = "python3".into();
    }
}

/// Whether `python` is surely nowhere on the sandbox's PATH, and `python3` surely somewhere.
fn has_only_python3(policy: &Policy, facts: &dyn Facts) -> bool {
    let Ok(layout) = shown(policy, facts) else {
        return false; // whoever prepares the policy says why
    };
    let mut asked = policy.clone();
    let mut found = |name: &str| {
        asked.command.argv = vec![name.into()];
        layout.program(&asked, facts)
    };
    found("python").is_err_and(|failure| failure.code == 127) && matches!(found("python3"), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::{Access, Mount};

    use super::*;
    use crate::plan::facts::{FactsTable, FileKind};

    fn policy() -> Policy {
        let mut policy = Policy::base();
        policy.filesystem.mounts.push(Mount::Bind {
            source: "/home/u/bin".into(),
            target: "/opt/own".into(),
            access: Access::ReadOnly,
            exec: true,
            optional: false,
        });
        policy
    }

    fn host(further: &[&str]) -> FactsTable {
        let mut table = FactsTable::usual(&["/home/u/bin/"]);
        for path in further {
            table.add(path, FileKind::File { links: 1, executable: true });
        }
        table
    }

    #[test]
    fn python_is_replaced_only_where_it_is_nowhere_and_python3_is_there() {
        let mut policy = policy();
        assert!(has_only_python3(&policy, &host(&[])));
        assert!(!has_only_python3(&policy, &host(&["/usr/bin/python"])));
        let own = host(&["/home/u/bin/python"]);
        assert!(has_only_python3(&policy, &own), "it is there, and not on the sandbox's PATH");
        policy.command.variables.insert("PATH".into(), "/usr/bin:/opt/own".into());
        assert!(!has_only_python3(&policy, &own));
        policy.command.variables.insert("PATH".into(), "/opt/own".into());
        assert!(!has_only_python3(&policy, &host(&[])), "neither is there: what is told is what was asked for");
        policy.command.variables.insert("PATH".into(), "/tmp:/usr/bin".into());
        assert!(!has_only_python3(&policy, &host(&[])), "scratch space can hold anything by then");
    }

    #[test]
    fn only_the_name_of_the_program_is_meant() {
        for (argv, at) in [(&["python", "x"][..], 0), (&["/usr/bin/env", "python"], 1), (&["echo", "python"], 0)] {
            assert_eq!(place(&argv.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()), at);
        }
        for argv in [&["echo", "python"][..], &["/usr/bin/python"], &["env"], &[]] {
            let mut policy = policy();
            policy.command.argv = argv.iter().map(|&word| word.to_owned()).collect();
            let before = policy.clone();
            python3(&mut policy);
            assert_eq!(policy, before);
        }
    }
}

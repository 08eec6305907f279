//! Init's failures in words: the step, the object it was on, the errno, and what the user can do.

use cofferdam_confine::init_plan::{InitPlan, MountSource, MountStep};
use cofferdam_confine::wire::step::{self, FailurePoint};

use cofferdam_policy::Field;
use cofferdam_policy::text::escape;

use crate::failure::{FailedStep, Failure};

fn errno(n: i32) -> String {
    let text = std::io::Error::from_raw_os_error(n).to_string();
    let words = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
    match cofferdam_policy::errno::errno_name(n) {
        Some(name) => format!("{words} ({name})"),
        None => words,
    }
}

fn mount(init_plan: &InitPlan, index: usize) -> String {
    let source = |s: &MountSource| match s {
        MountSource::Path { path, .. } | MountSource::System(path) => path.clone(),
        MountSource::Prepared(i) => format!("prepared mount {i}"),
    };
    match init_plan.mounts.get(index) {
        Some(MountStep::RootHost { .. }) => "the host's root".into(),
        Some(MountStep::RootScratch) => "the sandbox's own root".into(),
        Some(MountStep::RootDirectory { source: s, .. }) => format!("{} as the root", source(s)),
        Some(MountStep::Bind { source: s, target, .. }) => format!("{} on {target}", source(s)),
        Some(MountStep::Overlay { source: s, target, .. }) => format!("copy-on-write of {} on {target}", source(s)),
        Some(MountStep::Whiteout { target, .. }) => format!("the layer that hides names in {target}"),
        Some(MountStep::Device { name, .. }) => format!("the device /dev/{name}"),
        Some(MountStep::Scratch { name, target, .. }) => format!("scratch {name} on {target}"),
        Some(MountStep::Tmpfs { target, .. }) => format!("tmpfs on {target}"),
        Some(MountStep::Proc { target, .. }) => format!("proc on {target}"),
        Some(MountStep::Devpts { target }) => format!("devpts on {target}"),
        Some(MountStep::Mask { target, .. }) => format!("the mask of {target}"),
        Some(MountStep::SelfBind { target, .. }) => format!("the bind of {target} onto itself"),
        Some(MountStep::Point { directory, name, .. }) => format!("the mount point {directory}/{name}"),
        Some(MountStep::Mkdir { name, .. } | MountStep::Symlink { name, .. } | MountStep::File { name, .. }) => {
            format!("scratch entry {name}")
        }
        None => "an unknown mount".into(),
    }
}

/// What init answers when another file stands where a rule was decided on.
const ESTALE: i32 = 116;

/// As whom a container was started in place of the ids that were asked for; `None` for any other point of `step::IDS`.
fn other_ids(point: FailurePoint) -> Option<&'static str> {
    match point {
        step::ids::WRONG_USER | step::ids::GET_USER => Some("as another user"),
        step::ids::WRONG_GROUP | step::ids::GET_GROUP => Some("in another group"),
        step::ids::EXTRA_GROUPS | step::ids::GET_GROUPS => Some("in more groups"),
        _ => None,
    }
}

/// A failed step as the caller sees it.
pub(crate) fn failure(init_plan: &InitPlan, point: FailurePoint, code: i32) -> Failure {
    let index = point.index as usize;
    let make = |step: FailedStep, message: String, hint: Option<String>| Failure { code: 125, step, message, hint };
    let e = errno(code);
    match point.step {
        step::EXEC => exec(init_plan, index, code),
        step::CWD => make(
            FailedStep::policy("command.cwd"),
            format!("cannot enter the working directory {} inside the sandbox: {e}", init_plan.cwd),
            Some("name one that exists inside with -w, or mount it with -v".into()),
        ),
        step::SOURCE => make(
            FailedStep::Mount,
            format!("cannot use the source of {}: {e}", mount(init_plan, index)),
            source_hint(code),
        ),
        step::MOUNT => make(
            FailedStep::Mount,
            format!("cannot mount {}: {e}", mount(init_plan, index)),
            mount_hint(init_plan, index, code),
        ),
        step::SCRATCH => {
            make(FailedStep::Mount, format!("cannot make the scratch file system (part {index}): {e}"), None)
        }
        step::PRIVATE => make(FailedStep::Mount, format!("cannot make the mounts private: {e}"), None),
        step::PIVOT => make(FailedStep::Pivot, format!("cannot change the root (part {index}): {e}"), None),
        step::IDS => match other_ids(point) {
            Some(who) => make(
                FailedStep::Ids,
                format!("the container was started {who} than was asked for ({e})"),
                Some(
                    "an image whose /etc/passwd or /etc/group has numbers for names does that: use another image"
                        .into(),
                ),
            ),
            None => make(FailedStep::Ids, format!("cannot set the sandbox's ids (part {index}): {e}"), None),
        },
        step::LOOPBACK => make(FailedStep::Field(Field::Network), format!("cannot bring loopback up: {e}"), None),
        step::CAPTURE => {
            let what = init_plan.capture.as_ref().map_or_else(|| "capture the network".into(), |c| c.item(index));
            make(FailedStep::Field(Field::Network), format!("cannot {what}: {e}"), capture_hint(code))
        }
        step::HOSTNAME => make(FailedStep::Field(Field::Hostname), format!("cannot set the host name: {e}"), None),
        step::TERMINAL => make(FailedStep::Terminal, format!("cannot make a terminal (part {index}): {e}"), None),
        step::GUARD => make(
            FailedStep::Field(Field::Protected),
            format!(
                "cannot guard the names in {}: {e}",
                init_plan.guards.get(index).map_or("a directory", |g| g.parent.as_str())
            ),
            None,
        ),
        step::RLIMIT => {
            make(FailedStep::Limits, format!("cannot set process limit {:?}: {e}", init_plan.rlimits.get(index)), None)
        }
        step::LANDRULE if init_plan.landlock.is_none() => make(
            FailedStep::Field(Field::Mounts),
            format!(
                "{} is not what was looked at when the run was prepared: {e}",
                init_plan.checked.get(index).map_or("a mount", |r| r.path.as_str())
            ),
            Some("its source was replaced meanwhile: run it again".into()),
        ),
        step::LANDRULE if code == ESTALE => make(
            FailedStep::Landlock,
            format!(
                "{} was replaced after it was checked, and is another file now",
                init_plan.landlock.as_ref().and_then(|l| l.rules.get(index)).map_or("a program", |r| r.path.as_str())
            ),
            Some("run it again".into()),
        ),
        step::LANDLOCK => make(FailedStep::Landlock, format!("cannot apply Landlock for the ruleset: {e}"), None),
        step::LANDRULE => make(
            FailedStep::Landlock,
            format!(
                "cannot apply Landlock for {}: {e}",
                init_plan.landlock.as_ref().and_then(|l| l.rules.get(index)).map_or("the ruleset", |r| r.path.as_str())
            ),
            None,
        ),
        step::SECCOMP => {
            // The filter's listener is one more descriptor, made under the program's own limit.
            let hint = (code == 24).then(|| "raise --open-files: setup itself needs 16".to_owned());
            make(FailedStep::Field(Field::Seccomp), format!("cannot install the system call filter: {e}"), hint)
        }
        step::CAPS => make(FailedStep::Capabilities, format!("cannot drop capabilities (part {index}): {e}"), None),
        step::FORK => make(FailedStep::Spawn, format!("cannot create the program's process: {e}"), None),
        other => make(FailedStep::Init, format!("init failed in step {other}, part {index}: {e}"), None),
    }
}

fn exec(init_plan: &InitPlan, index: usize, code: i32) -> Failure {
    let name = escape(init_plan.argv.first().map_or("", String::as_str).as_bytes());
    let path = init_plan.programs.get(index).map_or(name.as_str(), String::as_str);
    let make = |code, message, hint: Option<&str>| Failure {
        code,
        step: FailedStep::Exec,
        message,
        hint: hint.map(str::to_owned),
    };
    match code {
        2 if init_plan.programs.len() > 1 => {
            let hint = "name its path, set PATH with -e PATH=..., or mount the directory that holds it with -v";
            make(127, format!("{name}: not found on the sandbox's PATH"), Some(hint))
        }
        2 | 20 => {
            let hint = "it, or the interpreter that it names, does not exist inside the sandbox; mount it with -v";
            make(127, format!("{name}: not found inside the sandbox"), Some(hint))
        }
        8 => make(126, format!("{path}: not a program that this system runs"), Some("a script needs a #! line")),
        13 => make(
            126,
            format!("{path}: not executable inside the sandbox"),
            Some("chmod +x it, or name its interpreter; on a writable volume, add `,exec` as in -v .:.:rw,exec"),
        ),
        _ => make(126, format!("{path}: cannot be executed: {}", errno(code)), None),
    }
}

fn source_hint(code: i32) -> Option<String> {
    match code {
        116 => Some("it was replaced while the run was being prepared; run again".into()),
        _ => None,
    }
}

/// A directory as the root has no place for a mount.
pub(crate) const ROOT_LACKS_PLACE: &str = "a directory as the root is not written to: make an empty directory there for each mount, /dev and /proc \
     and the working directory included, or start elsewhere with -w";

fn capture_hint(code: i32) -> Option<String> {
    match code {
        // ENOPROTOOPT, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT
        92..=95 | 97 => Some(
            "this kernel lacks a part of its network: CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES are needed"
                .into(),
        ),
        24 => Some("raise the limit of open files of this process: ulimit -n 1024".into()),
        _ => None,
    }
}

fn mount_hint(init_plan: &InitPlan, index: usize, code: i32) -> Option<String> {
    match (init_plan.mounts.get(index), code) {
        (Some(MountStep::Overlay { .. }), 22) => {
            Some("a directory with other mounts below it cannot be copied on write; mount them one by one".into())
        }
        (_, 2) if init_plan.mounts.iter().any(|step| matches!(step, MountStep::RootDirectory { .. })) => {
            Some(ROOT_LACKS_PLACE.into())
        }
        (Some(MountStep::Mask { .. } | MountStep::SelfBind { .. }), 2 | 20) => {
            Some("it was moved or removed while the run was being prepared; run it again".into())
        }
        // In a root of our own, nothing that init makes is refused by a mode.
        (Some(MountStep::Mkdir { .. } | MountStep::Symlink { .. } | MountStep::File { .. }), 13) => Some(
            "the engine mounts /tmp with the mode that it has in the image: chmod 1777 /tmp in the image, or use --backend oci".into(),
        ),
        (Some(MountStep::Overlay { .. }), 95) => Some("copy-on-write needs Linux 6.6 or later".into()),
        (Some(MountStep::Proc { .. }), 1) => Some(
            "an outer container hides parts of /proc; run it with --security-opt systempaths=unconfined, or use --backend landlock".into(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_confine::init_plan::{LandlockHandled, PathRule};

    use super::*;

    #[test]
    fn a_failed_rule_names_its_path_and_a_failed_ruleset_names_none() {
        let rule = |path: &str| PathRule { path: path.into(), access: 1, optional: false, identity: None };
        let landlock = LandlockHandled { rules: vec![rule("/a"), rule("/b")], ..LandlockHandled::default() };
        let plan = InitPlan { landlock: Some(landlock), ..InitPlan::default() };
        let message = |point| failure(&plan, point, 1).message;
        let why = "operation not permitted (EPERM)";
        assert_eq!(message(step::landrule::RULE.item(1)), format!("cannot apply Landlock for /b: {why}"));
        assert_eq!(message(step::landlock::RESTRICT_PAYLOAD), format!("cannot apply Landlock for the ruleset: {why}"));
    }

    #[test]
    fn wrong_ids_of_a_container_are_named_and_other_points_numbered() {
        let message = |point| failure(&InitPlan::default(), point, 1).message;
        let why = "operation not permitted (EPERM)";
        for (point, who) in [
            (step::ids::WRONG_USER, "as another user"),
            (step::ids::GET_GROUP, "in another group"),
            (step::ids::EXTRA_GROUPS, "in more groups"),
        ] {
            assert_eq!(message(point), format!("the container was started {who} than was asked for ({why})"));
        }
        assert_eq!(message(step::ids::UNDUMPABLE), format!("cannot set the sandbox's ids (part 9): {why}"));
    }
}

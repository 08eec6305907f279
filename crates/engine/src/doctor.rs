//! What `doctor` shows: each mechanism of the host, whether this process can use it, how that is known, and the command
//! that would provide it.

use cofferdam_confine::{capture, cgroup, host, landlock, memfd};

use crate::engine::Engine;
use crate::plan::support::Mechanism;

fn row(name: &'static str, gives: &'static str, found: Result<String, String>, enable: Option<&str>) -> Mechanism {
    let available = found.is_ok();
    let evidence = found.unwrap_or_else(|e| e);
    Mechanism { name, available, evidence, gives, enable: if available { None } else { enable.map(str::to_owned) } }
}

/// The limit over all runs of this user.
fn memory_of_all_runs(probe: &cgroup::Probe) -> Mechanism {
    let (found, enable) = match (probe.memory_cap(), &probe.memory) {
        (Some(Ok(cap)), _) => (Ok(format!("{} MiB, by {}", cap.bytes >> 20, cap.place)), None),
        (Some(Err(reason)), _) => (Err(reason), Some("rmdir that directory while nothing runs: the next run makes it")),
        (None, cgroup::Availability::Unavailable { reason, hint }) => (Err(reason.clone()), Some(hint.as_str())),
        (None, cgroup::Availability::Available(_)) => (Err("no memory controller".to_owned()), None),
    };
    row("memory of all runs", "a limit on the memory of all runs of this user together", found, enable)
}

impl Engine {
    /// Tries each mechanism.
    pub fn mechanisms(&self) -> Vec<Mechanism> {
        let me = host::identity();
        let mut rows = Vec::new();
        let refused = host::user_namespaces_refused(me.privileged);
        let userns =
            host::try_user_namespace().map(|_| "made one with an id map".to_owned()).map_err(|e| match refused {
                Some((why, _)) => format!("{e}; {why}"),
                None => e.to_string(),
            });
        let enable = match refused {
            Some((_, command)) => command,
            None if host::is_enclosed() => host::ENCLOSED,
            None => "sysctl -w user.max_user_namespaces=15000",
        };
        rows.push(row("user namespaces", "the jail: namespaces and mounts without privileges", userns, Some(enable)));
        let abi = landlock::abi();
        let found =
            if abi > 0 { Ok(format!("ABI {abi}")) } else { Err("landlock_create_ruleset answers no version".into()) };
        rows.push(row(
            "landlock",
            "the second layer of the jail, the first of the landlock backend",
            found,
            Some("boot with lsm=landlock,yama,apparmor (Linux 5.13 or later)"),
        ));
        rows.push(row(
            "landlock scopes",
            "abstract sockets and signals stay inside without namespaces",
            if abi >= 6 { Ok(format!("ABI {abi}")) } else { Err(format!("ABI {abi}, 6 is needed")) },
            Some("apt-get install a kernel of version 6.12 or later"),
        ));
        let versions = capture::versions();
        let told = match versions {
            capture::Versions::Both => "every IPv4 and IPv6 address was made local",
            capture::Versions::Four => "every IPv4 address was made local; there is no IPv6",
        };
        let captured = capture::attempt(&capture::Capture::new(versions));
        rows.push(row(
            "captured network",
            "mode allowlist: every connection arrives at the egress gateway",
            captured.map(|()| told.to_owned()).map_err(|(what, e)| format!("cannot {what}: {e}")),
            Some("a kernel with CONFIG_IP_MULTIPLE_TABLES"),
        ));
        rows.push(row(
            "redirected ports",
            "mode allowlist with more ports than there can be listeners",
            crate::plan::egress::redirects(versions).map(|()| "nf_tables took the rules".to_owned()),
            Some("modprobe -a nft_chain_nat nft_redir"),
        ));
        let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
        let has = |a: &str| actions.split_whitespace().any(|x| x == a);
        rows.push(row(
            "seccomp",
            "the system call filter",
            if has("errno") { Ok("in actions_avail".into()) } else { Err("not in actions_avail".into()) },
            Some("a kernel with CONFIG_SECCOMP_FILTER"),
        ));
        rows.push(row(
            "seccomp notification",
            "violations with evidence, guards for names that do not exist yet",
            if has("user_notif") {
                Ok("user_notif in actions_avail".into())
            } else {
                Err("no user_notif in actions_avail".into())
            },
            Some("Linux 5.0 or later with CONFIG_SECCOMP_FILTER"),
        ));
        rows.push(row(
            "sealed program memory",
            "init without any file of the host's",
            memfd::init_program().map(|_| "made and sealed".to_owned()).map_err(|e| e.to_string()),
            Some("sysctl -w vm.memfd_noexec=1"),
        ));
        let overlay = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let loaded = overlay.lines().any(|l| l.trim_end().ends_with("overlay"));
        rows.push(row(
            "overlayfs",
            "copy-on-write mounts",
            if loaded { Ok("in /proc/filesystems".into()) } else { Err("not in /proc/filesystems".into()) },
            Some("modprobe overlay"),
        ));
        let probe = cgroup::probe();
        for (name, gives, a) in [
            ("cgroup memory", "limits.memory_mb for the whole tree, and its peak", &probe.memory),
            ("cgroup pids", "the peak number of processes, and a limit beside RLIMIT_NPROC", &probe.pids),
            ("cgroup cpu", "limits.cpu_millis", &probe.cpu),
            ("cgroup cpu time", "limits.cpu_seconds for the whole tree", &probe.cpu_time),
        ] {
            match a {
                cgroup::Availability::Available(m) => {
                    let how = match m {
                        cgroup::LimitMechanism::V1 => "version 1",
                        cgroup::LimitMechanism::V2 => "version 2",
                        cgroup::LimitMechanism::V2Leaf => "version 2, in a leaf of our own",
                        cgroup::LimitMechanism::V2Scope => "version 2, in a scope of systemd's",
                    };
                    rows.push(row(name, gives, Ok(how.to_owned()), None));
                }
                cgroup::Availability::Unavailable { reason, hint } => {
                    rows.push(row(name, gives, Err(reason.clone()), Some(hint)));
                }
            }
        }
        rows.push(memory_of_all_runs(&probe));
        if me.privileged {
            let id = host::unprivileged_id();
            rows.push(row(
                "unprivileged id",
                "as root: the user that sandboxes run as, never 0",
                id.map(|i| i.to_string()).ok_or_else(|| "none is mapped here".to_owned()),
                Some("run as an ordinary user"),
            ));
        }
        rows
    }
}

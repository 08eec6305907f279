//! The one table of policy options: it feeds the parser, the help, the man pages, the completions and the tests.
//!
//! Rows only; what a row is stands in `options`. Help shows them in this order.

use cofferdam_policy::{
    Access, AuditLevel, Backend, Field, Mount, NetworkMode, OnViolation, Root, SeccompLevel, Stdin,
};

use crate::hints::quoted;
use crate::options::{BLANK, FILES, HOLD, LIMITS, PolicyOption, RIGHTS, Takes};
use crate::values;

/// Every policy option, in the order in which help shows them.
pub const POLICY_OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "env",
        short: Some('e'),
        takes: Takes::Many("NAME[=VALUE]"),
        help: "Set a variable; without VALUE, copy the caller's",
        more: "The program gets no other variable of the caller's.",
        leaves: &["command.variables"],
        apply: |draft, text| {
            let (name, value) = values::variable(text)?;
            let value = match value.or_else(|| draft.caller.variable(name)) {
                Some(value) => value.to_owned(),
                None => return Err(values::no_variable(name)),
            };
            draft.policy.command.variables.insert(name.to_owned(), value);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "workdir",
        short: Some('w'),
        takes: Takes::One("DIR"),
        help: "Directory inside in which the program starts",
        leaves: &["command.cwd"],
        apply: |draft, text| {
            draft.policy.command.cwd = Some(draft.caller.absolute_inside(text));
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "interactive",
        short: Some('i'),
        help: "Pass standard input on; it is closed otherwise",
        leaves: &["command.stdin"],
        apply: |draft, _| {
            draft.policy.command.stdin = Stdin::Caller;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "stdin",
        takes: Takes::One("TEXT"),
        help: "Use TEXT as standard input",
        rare: true,
        leaves: &["command.stdin"],
        apply: |draft, text| {
            draft.policy.command.stdin = Stdin::Text(text.to_owned());
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "id",
        takes: Takes::One("NAME"),
        help: "Name of the policy, for reports",
        rare: true,
        leaves: &["id"],
        apply: |draft, text| {
            draft.policy.id = Some(text.to_owned());
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "description",
        takes: Takes::One("TEXT"),
        help: "Free text about the policy",
        rare: true,
        leaves: &["description"],
        apply: |draft, text| {
            draft.policy.description = Some(text.to_owned());
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "volume",
        short: Some('v'),
        takes: Takes::Many("SRC:DST[:MODE]"),
        help: "Show a host path; MODE ro (default), rw, cow",
        more: "`ro` can be read, `rw` changes the host's own files, `cow` (copy-on-write) keeps changes in a layer in \
               memory that is listed afterwards and dropped, or kept with --keep-changes. Add `,exec` to allow \
               programs on a writable one to be executed, `,noexec` to forbid it on a read-only one, and \
               `,optional` to leave the mount out where nothing is at SRC, which the answer says. An option with \
               the target of a default mount replaces it: `-v .:.:rw` makes the working directory writable.",
        heading: FILES,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        apply: |draft, text| {
            let volume = values::volume(text)?;
            let mount = Mount::Bind {
                source: draft.caller.absolute(&volume.source),
                target: draft.caller.absolute_inside(&volume.target),
                access: volume.access,
                exec: volume.exec,
                optional: volume.optional,
            };
            if volume.access == Access::CopyOnWrite {
                draft.policy.require(Field::Layer);
            }
            draft.mount(mount);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "tmpfs",
        takes: Takes::Many("DST[:size=64m]"),
        help: "Mount an empty file system in memory",
        more: "Add `,exec` to allow programs on it to be executed.",
        heading: FILES,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        apply: |draft, text| {
            let tmpfs = values::tmpfs(text)?;
            let target = draft.caller.absolute_inside(&tmpfs.target);
            draft.mount(Mount::Tmpfs { target, size_mb: tmpfs.size_mb, exec: tmpfs.exec });
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "read-only",
        help: "Make every volume read-only, the policy file's too",
        heading: FILES,
        rare: true,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        late: true,
        apply: |draft, _| {
            for mount in &mut draft.policy.filesystem.mounts {
                if let Mount::Bind { access, .. } = mount {
                    *access = Access::ReadOnly;
                }
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "root",
        takes: Takes::One("VIEW|DIR"),
        help: "What / is: host, minimal, interpreter, or DIR",
        more: "Read-only in each case. `host` is without /run, /tmp, devices and what is denied. `minimal` has the system's \
               programs and libraries, `interpreter` of them only the program, its interpreter and their libraries.",
        heading: FILES,
        leaves: &["filesystem.root"],
        requires: &[Field::Root],
        apply: |draft, text| {
            draft.policy.filesystem.root = match text {
                "host" => Root::Host,
                "minimal" => Root::Minimal,
                "interpreter" => Root::Interpreter,
                "" => return Err("an empty root; write it like host, minimal or ./rootfs".into()),
                dir => {
                    let path = draft.caller.absolute(dir);
                    if !dir.contains('/') && std::fs::metadata(&path).is_err() {
                        return Err(format!(
                            "`{dir}` is neither `host`, `minimal` nor `interpreter`, nor a directory here\n\
                             hint: --root host, --root minimal or --root ./DIR"
                        ));
                    }
                    Root::Directory(path)
                }
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "image",
        takes: Takes::One("REF|TAR|DIR"),
        help: "What / is in a container: image, tarball, DIR",
        more: "Read-only. REF is an image's name, tag or digest; what the engine has not is pulled. A path, which begins with \
               `/` or `.`, is a tarball or a directory of this host.",
        heading: FILES,
        leaves: &["filesystem.root"],
        requires: &[Field::Root],
        apply: |draft, text| {
            let local = text.starts_with(['/', '.']);
            let path = if local { draft.caller.absolute(text) } else { text.to_owned() };
            let there = if local { std::fs::metadata(&path) } else { Err(std::io::ErrorKind::NotFound.into()) };
            if let Some(error) = there.as_ref().err().filter(|_| local) {
                return Err(format!(
                    "cannot use {path} as an image: {error}\nhint: a path names a tarball or a directory of this host; \
                     an image of an engine's store or of a registry has no `/` or `.` in front: --image alpine:3.20"
                ));
            }
            let directory = there.is_ok_and(|meta| meta.is_dir());
            draft.policy.filesystem.root = if directory { Root::Directory(path) } else { Root::Image(path) };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "deny",
        takes: Takes::Many("PATH"),
        help: "A path that can be neither read nor written",
        more: "Holds also when it does not exist yet.",
        heading: FILES,
        leaves: &["filesystem.deny"],
        requires: &[Field::Deny],
        apply: |draft, text| {
            draft.is_one_path("deny", text)?;
            let path = draft.caller.absolute(text);
            if !draft.policy.filesystem.deny.contains(&path) {
                draft.policy.filesystem.deny.push(path);
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "protect",
        takes: Takes::Many("PATH"),
        help: "A path that can be read but never written",
        more: "Holds also when it does not exist yet. A name without a leading `/` or `./`, such as .git/hooks, holds \
               in every writable volume.",
        heading: FILES,
        rare: true,
        leaves: &["filesystem.protected"],
        requires: &[Field::Protected],
        apply: |draft, text| {
            draft.is_one_path("protect", text)?;
            let here = text.starts_with("./") || text.starts_with("../") || text == ".";
            let path = if here { draft.caller.absolute(text) } else { text.to_owned() };
            if !draft.policy.filesystem.protected.contains(&path) {
                draft.policy.filesystem.protected.push(path);
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "network",
        takes: Takes::One("MODE"),
        help: "none (default), loopback, host or allow=HOST,…",
        more: "`allow=HOST[:PORTS],…` is the same as --network allowlist with an --allow for each; it counts once, so more \
               hosts stand in the one list or behind --allow.",
        heading: RIGHTS,
        leaves: &["network.mode"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.policy.network.mode = match text {
                "none" => NetworkMode::None,
                "loopback" => NetworkMode::Loopback,
                "host" => NetworkMode::Host,
                "allowlist" => NetworkMode::Allowlist,
                _ => {
                    let Some(list) = text.strip_prefix("allow=") else {
                        let known = "none, loopback, allowlist, host or allow=HOST[:PORTS],…";
                        // A word with a dot can only have been meant for a host.
                        let host = text.contains('.').then(|| format!("\nhint: --allow {}", quoted(text)));
                        return Err(format!("`{text}` is no network mode: {known}{}", host.unwrap_or_default()));
                    };
                    for entry in values::network_list(list) {
                        draft.policy.network.allow.push(values::allow_rule(&entry)?);
                    }
                    NetworkMode::Allowlist
                }
            };
            draft.network_named = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "allow",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host, *.SUFFIX or CIDR it may reach",
        more: "PORTS is a list such as `22`, `80,8000-8010`, or `*` for every port; without it 80 and 443. Alone it means \
               --network allowlist.",
        heading: RIGHTS,
        leaves: &["network.allow"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.network_by_list();
            let rule = values::allow_rule(text).map_err(|why| values::not_one_entry("allow", text, why))?;
            draft.policy.network.allow.push(rule);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "deny-host",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host, *.SUFFIX or CIDR that stays out of reach",
        more: "It wins over --allow, and holds for the addresses that names resolve to. Without PORTS: every port.",
        heading: RIGHTS,
        rare: true,
        leaves: &["network.deny"],
        requires: &[Field::Network],
        apply: |draft, text| {
            let entry = values::deny_entry(text).map_err(|why| values::not_one_entry("deny-host", text, why))?;
            draft.policy.network.deny.push(entry);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "api",
        takes: Takes::One("[VARIABLE=]URL"),
        help: "An API of the host's side that is passed through",
        more: "Inside it is at http://127.0.0.1:3129 and nowhere else, and VARIABLE (ISCL_API_URL) says so. Each request is \
               on record. Alone it means --network allowlist.",
        heading: RIGHTS,
        rare: true,
        leaves: &["network.api.url", "network.api.variable"],
        requires: &[Field::Network, Field::Api],
        apply: |draft, text| {
            let api = values::api(text)?;
            draft.network_by_list();
            draft.policy.network.api = Some(api);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "upstream-proxy",
        takes: Takes::One("URL"),
        help: "Proxy through which allowed connections go out",
        more: "`http://[USER:PASSWORD@]HOST:PORT`. The proxy then resolves the names, so what they resolve to is not \
               checked: naming one accepts that (network.upstream_proxy becomes best effort). Default: $HTTPS_PROXY, \
               $https_proxy, $ALL_PROXY or $all_proxy, if it is an http:// URL; `none` goes out directly.",
        heading: RIGHTS,
        rare: true,
        leaves: &["network.upstream_proxy"],
        apply: |draft, text| {
            draft.direct = text == "none";
            draft.policy.network.upstream_proxy = None;
            if !draft.direct {
                draft.policy.network.upstream_proxy = Some(values::proxy(text)?);
                draft.policy.allow_partial(Field::UpstreamProxy);
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "network-limit",
        takes: Takes::Many("NAME=NUMBER"),
        help: "A budget of its connections, such as down_mb=100",
        more: "connections (256) and connections_per_host (64) open at once; up_mb (1024) and down_mb (10240) for the run; \
               host_up_mb and host_down_mb for each host; kib_per_second; names (512) that may be asked for.",
        heading: RIGHTS,
        rare: true,
        leaves: &[
            "network.limits.connections",
            "network.limits.connections_per_host",
            "network.limits.up_mb",
            "network.limits.down_mb",
            "network.limits.host_up_mb",
            "network.limits.host_down_mb",
            "network.limits.kib_per_second",
            "network.limits.names",
        ],
        requires: &[Field::NetworkLimits],
        apply: |draft, text| {
            let (name, value) = values::network_limit(text)?;
            draft.policy.network.limits.set(name, value);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "methods",
        takes: Takes::One("METHOD[,METHOD…]"),
        help: "Methods its requests on plain HTTP may have",
        more: "`--methods GET,HEAD` is for reading; without it any method passes. What is encrypted is not looked \
               into. Needs --allow.",
        heading: RIGHTS,
        rare: true,
        leaves: &["network.methods"],
        requires: &[Field::Methods],
        apply: |draft, text| {
            draft.policy.network.methods = Some(text.split(',').map(str::to_owned).collect());
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "no-spawn",
        help: "No child process at all; threads still work",
        heading: RIGHTS,
        leaves: &["process.spawn"],
        requires: &[Field::Spawn],
        apply: |draft, _| {
            draft.policy.process.spawn = false;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "spawn",
        help: "Allow child processes, where the policy file does not",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.spawn"],
        apply: |draft, _| {
            draft.policy.process.spawn = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "nested-sandboxes",
        help: "Let programs make sandboxes of their own inside",
        more: "As bubblewrap does. It costs the second wall behind the mounts, puts the kernel's code for mounts and \
               networks in reach, and goes with the view `minimal`; nothing may be held inside writable mounts.",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.nested_sandboxes"],
        requires: &[Field::NestedSandboxes],
        apply: |draft, _| {
            draft.policy.process.nested_sandboxes = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "seccomp",
        takes: Takes::Choice("LEVEL", &["disabled", "basic", "standard", "strict"]),
        help: "System calls: disabled, basic, standard or strict",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.seccomp.level"],
        requires: &[Field::Seccomp],
        apply: |draft, text| {
            draft.policy.process.seccomp.level = match text {
                "disabled" => SeccompLevel::Disabled,
                "basic" => SeccompLevel::Basic,
                "standard" => SeccompLevel::Standard,
                _ => SeccompLevel::Strict,
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "syscall-rule",
        takes: Takes::Many("CALLS:ACTION[:WHEN]"),
        help: "Refuse or kill on system calls, on top of the level",
        more: "CALLS are names with commas between them, ACTION is `kill` or an errno name, WHEN are conditions that \
               must all hold, each an argument's number from 0, an optional `&MASK`, one of == != < <= > >=, and a \
               number: `ptrace:kill`, `socket:EPERM:0==16`, `mmap,mprotect:EACCES:2&4!=0`.",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.seccomp.rules"],
        requires: &[Field::Seccomp],
        apply: |draft, text| {
            draft.policy.process.seccomp.rules.push(values::syscall_rule(text)?);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "unix-sockets",
        help: "Allow Unix sockets made inside or found in volumes",
        more: "Those in the working directory too. Sockets of the host's services stay denied.",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.unix_sockets"],
        apply: |draft, _| {
            draft.policy.process.unix_sockets = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "no-unix-sockets",
        help: "Refuse Unix sockets, where the policy file does not",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.unix_sockets"],
        requires: &[Field::UnixSockets],
        apply: |draft, _| {
            draft.policy.process.unix_sockets = false;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "hostname",
        takes: Takes::One("NAME"),
        help: "Host name inside",
        heading: RIGHTS,
        rare: true,
        leaves: &["process.hostname"],
        requires: &[Field::Hostname],
        apply: |draft, text| {
            draft.policy.process.hostname = text.to_owned();
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "memory",
        takes: Takes::One("SIZE"),
        help: "Memory of the whole tree, such as 512m",
        heading: LIMITS,
        leaves: &["limits.memory_mb"],
        requires: &[Field::Memory],
        apply: |draft, text| set(&mut draft.policy.limits.memory_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "cpus",
        takes: Takes::One("N"),
        help: "CPUs it may keep busy, such as 1.5",
        heading: LIMITS,
        leaves: &["limits.cpu_millis"],
        requires: &[Field::CpuShare],
        apply: |draft, text| set(&mut draft.policy.limits.cpu_millis, values::cpu_millis(text)),
        ..BLANK
    },
    PolicyOption {
        long: "timeout",
        takes: Takes::One("TIME"),
        help: "Wall time, such as 30s or 5m",
        heading: LIMITS,
        leaves: &["limits.wall_ms"],
        requires: &[Field::WallTime],
        apply: |draft, text| set(&mut draft.policy.limits.wall_ms, values::milliseconds(text)),
        ..BLANK
    },
    PolicyOption {
        long: "cpu-time",
        takes: Takes::One("TIME"),
        help: "CPU time of the whole tree, whole seconds",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.cpu_seconds"],
        requires: &[Field::CpuTime],
        apply: |draft, text| set(&mut draft.policy.limits.cpu_seconds, values::seconds(text)),
        ..BLANK
    },
    PolicyOption {
        long: "pids",
        takes: Takes::One("N"),
        help: "Processes and threads of the whole tree",
        heading: LIMITS,
        leaves: &["limits.processes"],
        requires: &[Field::Processes],
        apply: |draft, text| set(&mut draft.policy.limits.processes, values::count(text)),
        ..BLANK
    },
    PolicyOption {
        long: "open-files",
        takes: Takes::One("N"),
        help: "Open files per process",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.open_files"],
        requires: &[Field::OpenFiles],
        apply: |draft, text| set(&mut draft.policy.limits.open_files, values::count(text)),
        ..BLANK
    },
    PolicyOption {
        long: "file-size",
        takes: Takes::One("SIZE"),
        help: "Largest file it can write",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.file_size_mb"],
        requires: &[Field::FileSize],
        apply: |draft, text| set(&mut draft.policy.limits.file_size_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "tmpfs-size",
        takes: Takes::One("SIZE"),
        help: "Its own scratch space: /tmp, home and /dev/shm",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.tmpfs_mb"],
        requires: &[Field::Tmpfs],
        apply: |draft, text| set(&mut draft.policy.limits.tmpfs_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "output-limit",
        takes: Takes::One("SIZE"),
        help: "Output passed on per stream; the rest is dropped",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.output_bytes"],
        requires: &[Field::Output],
        apply: |draft, text| set(&mut draft.policy.limits.output_bytes, values::bytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "layer-size",
        takes: Takes::One("SIZE"),
        help: "Changes kept per copy-on-write volume",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.layer_mb"],
        requires: &[Field::Layer],
        apply: |draft, text| set(&mut draft.policy.limits.layer_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "layer-files",
        takes: Takes::One("N"),
        help: "Changed files per copy-on-write volume, at least 2",
        heading: LIMITS,
        rare: true,
        leaves: &["limits.layer_inodes"],
        requires: &[Field::Layer],
        apply: |draft, text| set(&mut draft.policy.limits.layer_inodes, values::count(text)),
        ..BLANK
    },
    PolicyOption {
        long: "backend",
        takes: Takes::Choice("NAME", values::BACKENDS),
        help: "What holds the policy: jail, docker, podman, oci",
        more: "`auto` is the `jail`, else `landlock`; `bubblewrap`, `nsjail` and `seatbelt` are other people's sandboxes. \
               `docker` and `podman` run it in a container of theirs, `oci` in one made by the first of crun, runc and youki \
               that is installed; `oci:crun`, `oci:runc`, `oci:youki`, `oci:runsc` name one. `cofferdam doctor` tells what each can hold here.",
        heading: HOLD,
        leaves: &["backend"],
        apply: |draft, text| {
            draft.policy.backend = Backend::from_name(text).unwrap_or(draft.policy.backend); // clap lets no other through
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "best-effort",
        takes: Takes::Optional("FIELD,…", "limits"),
        help: "Start also where these cannot be held in full",
        more: "FIELD is a dotted name such as limits.memory_mb, or a group such as `limits`, which is also what no \
               FIELD means. Whatever is named by an option is required otherwise: it holds in full, or nothing starts.",
        heading: HOLD,
        rare: true,
        leaves: &["enforcement.best_effort"],
        late: true,
        apply: |draft, text| {
            for name in text.split(',') {
                let in_group =
                    |f: &&Field| f.name() == name || f.name().split_once('.').is_some_and(|(group, _)| group == name);
                let before = draft.policy.enforcement.best_effort.len();
                let fields: Vec<Field> = Field::ALL.iter().filter(in_group).copied().collect();
                draft.policy.enforcement.best_effort.extend(&fields);
                if before == draft.policy.enforcement.best_effort.len() && fields.is_empty() {
                    let all: Vec<&str> = Field::ALL.iter().map(|f| f.name()).collect();
                    return Err(format!("`{name}` is no field; the fields are {}", all.join(", ")));
                }
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "on-violation",
        takes: Takes::Choice("ACTION", &["deny", "terminate"]),
        help: "What a refused call does: deny (default) or terminate",
        more: "`terminate` ends the run at a system call that the filter refuses and at a host that the network refuses. \
               What mounts and permissions refuse, as reading /etc/shadow, is an error of that call alone.",
        heading: HOLD,
        rare: true,
        leaves: &["on_violation"],
        apply: |draft, text| {
            draft.policy.on_violation = if text == "deny" { OnViolation::Deny } else { OnViolation::Terminate };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "audit",
        takes: Takes::Choice("LEVEL", &["off", "error", "warning", "info", "debug"]),
        help: "Violations to record: off, error, warning, info or debug",
        more: "`error` records what ended the run, `warning` also limits that it ran into, `info` (default) also each \
               refusal, `debug` also what libc asks for by itself. What is refused is the same at every level.",
        heading: HOLD,
        rare: true,
        leaves: &["audit.enabled", "audit.level"],
        apply: |draft, text| {
            let audit = &mut draft.policy.audit;
            audit.enabled = text != "off";
            audit.level = match text {
                "error" => AuditLevel::Error,
                "warning" => AuditLevel::Warning,
                "debug" => AuditLevel::Debug,
                _ => AuditLevel::Info,
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "trace",
        help: "Report refused paths too; slower",
        heading: HOLD,
        leaves: &["audit.trace"],
        apply: |draft, _| {
            draft.policy.audit.trace = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "no-trace",
        help: "Do not trace, where the policy file does",
        heading: HOLD,
        rare: true,
        leaves: &["audit.trace"],
        apply: |draft, _| {
            draft.policy.audit.trace = false;
            Ok(())
        },
        ..BLANK
    },
];

fn set(place: &mut u64, value: Result<u64, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

//! Policies made at random: of the right form, and mostly against the rules.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_policy::*;
use proptest::prelude::*;

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any::<String>(), 0..4)
}

fn command() -> impl Strategy<Value = Command> {
    let variables = prop::collection::btree_map(any::<String>(), any::<String>(), 0..4);
    let stdin = prop_oneof![Just(Stdin::Closed), Just(Stdin::Caller), any::<String>().prop_map(Stdin::Text)];
    (texts(), variables, any::<Option<String>>(), stdin)
        .prop_map(|(argv, variables, cwd, stdin): (_, BTreeMap<_, _>, _, _)| Command { argv, variables, cwd, stdin })
}

fn mount() -> impl Strategy<Value = Mount> {
    let access = prop::sample::select(vec![Access::ReadOnly, Access::ReadWrite, Access::CopyOnWrite]);
    prop_oneof![
        (any::<String>(), any::<String>(), access, any::<bool>(), any::<bool>()).prop_map(
            |(source, target, access, exec, optional)| Mount::Bind { source, target, access, exec, optional }
        ),
        (any::<String>(), any::<u64>(), any::<bool>())
            .prop_map(|(target, size_mb, exec)| { Mount::Tmpfs { target, size_mb, exec } }),
    ]
}

fn filesystem() -> impl Strategy<Value = Filesystem> {
    let root = prop_oneof![
        Just(Root::Host),
        Just(Root::Minimal),
        Just(Root::Interpreter),
        any::<String>().prop_map(Root::Directory),
        any::<String>().prop_map(Root::Image)
    ];
    (root, prop::collection::vec(mount(), 0..4), texts(), texts()).prop_map(|(root, mounts, deny, protected)| {
        Filesystem { root, mounts, deny, protected, identities: Default::default() }
    })
}

fn network() -> impl Strategy<Value = Network> {
    use NetworkMode::{Allowlist, Host, Loopback, None};
    let mode = prop::sample::select(vec![None, Loopback, Allowlist, Host]);
    let method = prop_oneof![prop::sample::select(allow::METHODS.to_vec()).prop_map(str::to_owned), any::<String>()];
    let methods = prop::option::of(prop::collection::vec(method, 0..3));
    let list = prop::collection::vec(method_or_path(), 0..3);
    let rule = (entry(), methods.clone(), prop::option::of(list), any::<bool>());
    let rule = rule.prop_map(|(entry, methods, paths, encrypted_hello)| AllowRule {
        entry: entry.parse().unwrap(),
        methods,
        paths,
        encrypted_hello,
        private: false,
    });
    let rule = (rule, any::<bool>()).prop_map(|(rule, private)| AllowRule {
        private: private && !rule.inspects() && matches!(rule.entry.to, To::Host { .. }),
        ..rule
    });
    let deny = entry().prop_map(|entry| entry.parse::<DenyEntry>().unwrap());
    let urls =
        ["http://127.0.0.1:8000/v1", "https://u:p%40@api.example", "http://[::1]:1", "http://proxy.example:3128"];
    let url = prop::sample::select(urls.to_vec()).prop_map(|url| url.parse::<HttpUrl>().unwrap());
    let api = (url.clone(), any::<String>()).prop_map(|(url, variable)| NetworkApi { url, variable });
    let limits = (any::<[u64; 5]>(), any::<[Option<u64>; 3]>()).prop_map(|(l, o)| NetworkLimits {
        connections: l[0],
        connections_per_host: l[1],
        up_mb: l[2],
        down_mb: l[3],
        names: l[4],
        host_up_mb: o[0],
        host_down_mb: o[1],
        kib_per_second: o[2],
    });
    let lists = (prop::collection::vec(rule, 0..4), prop::collection::vec(deny, 0..4));
    (mode, lists, methods, prop::option::of(api), prop::option::of(url), limits).prop_map(
        |(mode, (allow, deny), methods, api, upstream_proxy, limits)| Network {
            mode,
            allow,
            deny,
            methods,
            api,
            upstream_proxy,
            limits,
        },
    )
}

/// Entries of the network's lists, from few parts, so that they meet.
pub(crate) fn entry() -> impl Strategy<Value = String> {
    let to = vec![
        "a",
        "a.b",
        "x.a.b",
        "*.b",
        "*.a.b",
        "\u{e4}.b",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.0.1",
        "[fd00::/8]",
        "[fd00::1]",
    ];
    let ports = vec![":80", ":443", ":80,443", ":*", ":1-100,443", ":22"];
    (prop::sample::select(to), prop::sample::select(ports)).prop_map(|(to, ports)| format!("{to}{ports}"))
}

fn method_or_path() -> impl Strategy<Value = String> {
    prop_oneof![prop::sample::select(vec!["/", "/*", "/v1/*", "/v1/x", "GET"]).prop_map(str::to_owned), any::<String>()]
}

fn rule() -> impl Strategy<Value = SyscallRule> {
    use ArgOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let op = prop::sample::select(vec![Eq, Ne, Lt, Le, Gt, Ge]);
    let condition = (any::<u8>(), any::<u64>(), op, any::<u64>()).prop_map(|(index, mask, op, value)| ArgCondition {
        index,
        mask,
        op,
        value,
    });
    let action = prop_oneof![Just(SyscallAction::Kill), any::<String>().prop_map(SyscallAction::Errno)];
    (texts(), action, prop::collection::vec(condition, 0..3)).prop_map(|(syscalls, action, when)| SyscallRule {
        syscalls,
        action,
        when,
    })
}

fn process() -> impl Strategy<Value = Process> {
    use SeccompLevel::{Basic, Disabled, Standard, Strict};
    let level = prop::sample::select(vec![Disabled, Basic, Standard, Strict]);
    let seccomp = (level, prop::collection::vec(rule(), 0..3)).prop_map(|(level, rules)| Seccomp { level, rules });
    (any::<[bool; 3]>(), seccomp, any::<String>()).prop_map(
        |([spawn, nested_sandboxes, unix_sockets], seccomp, hostname)| Process {
            spawn,
            nested_sandboxes,
            seccomp,
            unix_sockets,
            hostname,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    any::<[u64; 11]>().prop_map(|l| Limits {
        memory_mb: l[0],
        cpu_seconds: l[1],
        cpu_millis: l[2],
        wall_ms: l[3],
        file_size_mb: l[4],
        open_files: l[5],
        processes: l[6],
        tmpfs_mb: l[7],
        output_bytes: l[8],
        layer_mb: l[9],
        layer_inodes: l[10],
    })
}

/// Any policy that the types can hold.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let best_effort = prop::collection::btree_set(prop::sample::select(Field::ALL.to_vec()), 0..8);
    let on_violation = prop::sample::select(vec![OnViolation::Deny, OnViolation::Terminate]);
    use AuditLevel::{Debug, Error, Info, Warning};
    let level = prop::sample::select(vec![Error, Warning, Info, Debug]);
    let audit = (any::<bool>(), level, any::<bool>());
    let audit = audit.prop_map(|(enabled, level, trace)| Audit { enabled, level, trace });
    let backend = prop::sample::select(vec![
        BackendName::Auto,
        BackendName::Jail,
        BackendName::Landlock,
        BackendName::Bubblewrap,
        BackendName::Nsjail,
        BackendName::Seatbelt,
    ]);
    (
        (any::<u32>(), any::<Option<String>>(), any::<Option<String>>()),
        (command(), filesystem(), network(), process(), limits()),
        (best_effort, on_violation, audit, backend),
    )
        .prop_map(|((version, id, description), groups, (best_effort, on_violation, audit, backend))| {
            let (command, filesystem, network, process, limits) = groups;
            let best_effort: BTreeSet<Field> = best_effort;
            Policy {
                version,
                id,
                description,
                command,
                filesystem,
                network,
                process,
                limits,
                enforcement: Enforcement { best_effort },
                on_violation,
                audit,
                backend,
            }
        })
}

//! The compiled programs: that they say what the decisions say, whatever is asked for; how long they are, and that ordinary
//! calls skip them.

use proptest::prelude::*;

use super::*;
use crate::seccomp::classify::{AND, JA, JEQ, JGE, JGT, JSET, LD_ABS, RET};

/// Values that the checks turn on, their neighbours, and the same with the upper half set.
fn values() -> Vec<u64> {
    let low = [
        0,
        1,
        2,
        3,
        5,
        6,
        8,
        10,
        16,
        17,
        38,
        40,
        58,
        262,
        0o100,
        0o755,
        0o2755,
        0o4755,
        0o100644,
        0o20666,
        0o60666,
        0o20000000,
        0o20200000,
        0x80801,
        4095,
        4096,
        0x5411,
        0x5412,
        0x541c,
        0x5423,
        0x4008_6602,
        0x1_0000,
        0x3d_0f00,
        0x1000_0000,
        0x7e02_0000,
        0x400,
        0x80,
        0xffff_ffff,
        0x4_0000,
    ];
    low.into_iter().chain(low.iter().map(|value| value | HIGH)).chain([u64::MAX, 1 << 32]).collect()
}

fn any_op() -> impl Strategy<Value = ArgComparison> {
    prop::sample::select(vec![
        ArgComparison::Eq,
        ArgComparison::Ne,
        ArgComparison::Lt,
        ArgComparison::Le,
        ArgComparison::Gt,
        ArgComparison::Ge,
    ])
}

fn any_value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => prop::sample::select(values()), 1 => any::<u64>()]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let mask = prop_oneof![Just(u64::MAX), any_value(), Just(0xffff_ffff)];
    (0..6u8, mask, any_op(), any_value()).prop_map(|(index, mask, op, value)| Condition { index, mask, op, value })
}

fn any_rule() -> impl Strategy<Value = FilterRule> {
    let names: Vec<&str> = CALLS.iter().map(|call| call.name).collect();
    let action = prop_oneof![Just(RuleAction::Kill), (1..4096u16).prop_map(RuleAction::Errno)];
    (prop::collection::vec(prop::sample::select(names), 1..8), action, prop::collection::vec(any_condition(), 1..4))
        .prop_map(|(names, action, when)| FilterRule {
            syscalls: names.into_iter().map(String::from).collect(),
            action,
            when,
        })
}

fn any_request() -> impl Strategy<Value = SeccompRequest<'static>> {
    let denials = prop::sample::select(vec![Denials::Errno, Denials::Notify, Denials::Kill]);
    let gate = prop::sample::select(vec![
        None,
        Some(NoSpawn { exec_fd: 4095, gate: ExecGate::Notify }),
        Some(NoSpawn { exec_fd: 4095, gate: ExecGate::Trace }),
        Some(NoSpawn { exec_fd: 4095, gate: ExecGate::Open }),
    ]);
    (prop::sample::select(LEVELS.to_vec()), denials, gate, any::<[bool; 10]>()).prop_map(
        |(
            level,
            denials,
            no_spawn,
            [creates, trace, addresses, connects, unix, no_network, ipc, metadata, exec, nested],
        )| SeccompRequest {
            level,
            denials,
            notify_creates: creates,
            notify_removes: creates,
            trace,
            addresses,
            connects,
            no_spawn,
            unix_sockets: unix,
            huge_pages: false,
            no_netlink: false,
            no_network_sockets: no_network,
            private_ipc: ipc,
            metadata_refused: metadata,
            core_limit: false,
            nested,
            limited_exec: exec,
            rules: &[],
        },
    )
}

/// The programs say what the decisions say, for one call.
fn agrees(
    request: &SeccompRequest<'_>,
    program: &FilterProgram,
    arch: Arch,
    decisions: &[Option<Decision>],
    nr: u32,
    args: [u64; 6],
) {
    let effect = decisions.get(nr as usize).and_then(Option::as_ref).map_or(levels::ABSENT, |it| it.effect(&args));
    let call = data(nr, arch, args);
    assert_eq!(classify::run(&program.filter, &call), Some(returned(effect, request)), "{nr} {args:x?} {request:?}");
    if program.notifies() {
        assert_eq!(classify::run(&program.classifier, &call), Some(verdict(effect).0), "{nr} {args:x?} {request:?}");
    }
}

fn by_number(request: &SeccompRequest<'_>, arch: Arch) -> Vec<Option<Decision>> {
    let mut by_number = vec![None; END as usize];
    for (nr, _, decision) in decisions(request, arch).unwrap() {
        by_number[nr as usize] = Some(decision);
    }
    by_number
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_agree_with_the_decisions_whatever_the_request(
        request in any_request(),
        rules in prop::collection::vec(any_rule(), 0..6),
        arch in prop::sample::select(ARCHS.to_vec()),
        calls in prop::collection::vec(prop::array::uniform6(any_value()), 12),
    ) {
        let request = SeccompRequest { rules: &rules, ..request };
        let program = compile(&request, arch).unwrap();
        let decisions = by_number(&request, arch);
        for nr in 0..END {
            for args in &calls {
                agrees(&request, &program, arch, &decisions, nr, *args);
            }
        }
        // The calls that rules look at, with the rules' own values.
        for rule in &rules {
            for nr in rule.syscalls.iter().filter_map(|name| syscall_number(name, arch)) {
                for args in &calls {
                    let mut args = *args;
                    for condition in &rule.when {
                        args[usize::from(condition.index)] = condition.value;
                        agrees(&request, &program, arch, &decisions, nr, args);
                    }
                }
            }
        }
    }

    #[test]
    fn any_comparison_is_exact(condition in any_condition(), arg in any_value(), wide in any::<bool>()) {
        // brk reads 64 bits, exit 32.
        let (name, index) = if wide { ("brk", 0) } else { ("exit", 0) };
        let condition = Condition { index, ..condition };
        let rules = [FilterRule { syscalls: vec![name.into()], action: RuleAction::Errno(77), when: vec![condition] }];
        let width = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let met = condition.op.holds(arg & condition.mask & width, condition.value & width);
        let got = result(&SeccompRequest { rules: &rules, ..SeccompRequest::of(SyscallLevel::Standard) }, name, &[arg]);
        prop_assert_eq!(got, if met { errno(77) } else { RET_ALLOW });
    }

    #[test]
    fn a_broken_program_refuses(
        insns in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..40),
    ) {
        let codes = [LD_ABS, AND, JA, JEQ, JGT, JGE, JSET, RET];
        let program: Vec<Insn> = insns
            .into_iter()
            .map(|(code, jt, jf, k)| Insn { code: codes[usize::from(code) % codes.len()], jt, jf, k: k % 80 })
            .collect();
        let call = data(1, Arch::X86_64, [1; 6]);
        let expected = classify::run(&program, &call).map_or(Verdict::REFUSED, Verdict);
        prop_assert_eq!(classify::classify(&program, &call), expected);
        prop_assert_eq!(classify::classify(&[], &call), Verdict::REFUSED);
    }
}

#[test]
fn every_call_agrees_at_every_level_for_each_relevant_value() {
    for level in LEVELS {
        for arch in ARCHS {
            let request = SeccompRequest { denials: Denials::Notify, ..SeccompRequest::of(level) };
            let program = compile(&request, arch).unwrap();
            let decisions = by_number(&request, arch);
            for nr in 0..END {
                for value in values() {
                    for at in 0..6 {
                        let mut args = [0; 6];
                        args[at] = value;
                        agrees(&request, &program, arch, &decisions, nr, args);
                        agrees(&request, &program, arch, &decisions, nr, [value; 6]);
                    }
                }
            }
        }
    }
}
#[test]
fn long_blocks_are_reached_over_more_than_a_jump() {
    let when = |call: u64| {
        (0..90).map(move |value| Condition {
            index: 1,
            mask: u64::MAX,
            op: ArgComparison::Ne,
            value: call * 1000 + value,
        })
    };
    let rules: Vec<FilterRule> = ["mmap", "munmap", "brk", "read", "write", "futex"]
        .iter()
        .enumerate()
        .map(|(at, name)| FilterRule {
            syscalls: vec![(*name).into()],
            action: RuleAction::Errno(50 + at as u16),
            when: when(at as u64).collect(),
        })
        .collect();
    let request = SeccompRequest { rules: &rules, ..SeccompRequest::of(SyscallLevel::Basic) };
    let program = compile(&request, Arch::X86_64).unwrap();
    assert!(program.filter.len() > 1500);
    let decisions = by_number(&request, Arch::X86_64);
    for nr in 0..END {
        for value in [0, 1000, 1089, 1090, 2005, 5089, 5090, 1 << 32] {
            agrees(&request, &program, Arch::X86_64, &decisions, nr, [value; 6]);
        }
    }
}

/// The kernel's own rule (`seccomp_is_const_allow`, kernel/seccomp.c) for calls that skip the filter.
fn cached(program: &[Insn], nr: u32, arch: u32) -> bool {
    let (mut at, mut a) = (0, 0);
    loop {
        let insn = program[at];
        let taken = match insn.code {
            LD_ABS if insn.k == 0 => {
                a = nr;
                at += 1;
                continue;
            }
            LD_ABS if insn.k == 4 => {
                a = arch;
                at += 1;
                continue;
            }
            RET => return insn.k == RET_ALLOW,
            JA => {
                at += insn.k as usize + 1;
                continue;
            }
            JEQ => a == insn.k,
            JGT => a > insn.k,
            JGE => a >= insn.k,
            JSET => a & insn.k != 0,
            _ => return false,
        };
        at += 1 + usize::from(if taken { insn.jt } else { insn.jf });
    }
}

#[test]
fn ordinary_calls_stay_in_the_kernels_cache() {
    for level in LEVELS {
        for arch in ARCHS {
            let request =
                SeccompRequest { denials: Denials::Notify, notify_creates: true, ..SeccompRequest::of(level) };
            let program = compile(&request, arch).unwrap().filter;
            for name in [
                "read",
                "write",
                "close",
                "fstat",
                "mmap",
                "munmap",
                "mprotect",
                "brk",
                "futex",
                "newfstatat",
                "statx",
                "getdents64",
                "readlinkat",
                "epoll_pwait",
                "clock_gettime",
                "rt_sigaction",
                "rt_sigprocmask",
                "lseek",
                "pread64",
                "sendto",
                "recvmsg",
                "wait4",
                "execve",
                "getpid",
                "prctl",
                "fcntl",
                "unlinkat",
                "faccessat",
            ] {
                let nr = syscall_number(name, arch).unwrap();
                assert!(cached(&program, nr, arch.audit()), "{name} at {level:?} on {arch:?}");
            }
        }
    }
}

#[test]
fn programs_are_short_and_the_way_through_them_is_shorter() {
    for level in LEVELS {
        for arch in ARCHS {
            let program =
                compile(&SeccompRequest { denials: Denials::Notify, ..SeccompRequest::of(level) }, arch).unwrap();
            eprintln!("{level:?} {arch:?}: filter {}, classifier {}", program.filter.len(), program.classifier.len());
            assert!(program.filter.len() < 700, "{level:?} {arch:?}: {}", program.filter.len());
            assert!(program.classifier.len() < 900);
        }
    }
    let trace = SeccompRequest {
        denials: Denials::Notify,
        trace: true,
        notify_creates: true,
        ..SeccompRequest::of(SyscallLevel::Standard)
    };
    let program = compile(&trace, Arch::X86_64).unwrap();
    eprintln!("traced: filter {}, classifier {}", program.filter.len(), program.classifier.len());
}

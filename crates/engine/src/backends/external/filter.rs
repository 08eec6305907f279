//! The system call filter without a notification listener: the same levels and rules, refusing by errno or by death,
//! with what the tools cannot do themselves added as rules.

use cofferdam_confine::seccomp::{
    Arch, ArgComparison, Condition, Denials, FilterProgram, FilterRule, RuleAction, compile, kafel,
};
use cofferdam_policy::{Field, NetworkMode, OnViolation, Policy};

use crate::failure::Failure;
use crate::plan::seccomp_filter::{Needs, request, rules};

const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const PR_SET_PDEATHSIG: u64 = 1;
const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// What a tool leaves to the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftToFilter {
    /// It brings loopback up in every network namespace: without network, sockets are refused whole.
    pub loopback: bool,
    /// It ends its program by a signal that the program itself asked for: the program may not take that back.
    pub death_signal: bool,
}

fn when(index: u8, mask: u64, value: u64) -> Condition {
    Condition { index, mask, op: ArgComparison::Eq, value }
}

fn refuse(calls: &[&str], when: Vec<Condition>) -> FilterRule {
    FilterRule { syscalls: calls.iter().map(|c| (*c).to_owned()).collect(), action: RuleAction::Errno(EPERM), when }
}

/// The policy's rules and those that the tool needs.
fn all_rules(policy: &Policy, left: LeftToFilter) -> Vec<FilterRule> {
    let mut all = rules(policy);
    // The jail switches nested user namespaces off by the kernel; here the filter does, at the level `disabled` as well.
    all.push(refuse(&["clone", "unshare"], vec![when(0, CLONE_NEWUSER, CLONE_NEWUSER)]));
    // What it is asked for lies behind a pointer; every program falls back to clone.
    let absent = RuleAction::Errno(ENOSYS);
    all.push(FilterRule { syscalls: vec!["clone3".into()], action: absent, when: Vec::new() });
    if left.death_signal {
        all.push(refuse(&["prctl"], vec![when(0, u64::MAX, PR_SET_PDEATHSIG)]));
    }
    if !policy.process.spawn {
        all.push(refuse(&["fork", "vfork"], Vec::new()));
        all.push(refuse(&["clone"], vec![when(0, CLONE_THREAD, 0)]));
    }
    all
}

fn compiled<T>(
    policy: &Policy,
    left: LeftToFilter,
    make: impl Fn(
        &cofferdam_confine::seccomp::SeccompRequest<'_>,
        Arch,
    ) -> Result<T, cofferdam_confine::seccomp::SeccompError>,
) -> Result<T, Failure> {
    let Some(arch) = Arch::native() else {
        return Err(Failure::new(Field::Seccomp, "no filter exists for this architecture"));
    };
    let needs = Needs {
        guards: false,
        links: false,
        no_net_namespace: left.loopback,
        own_net_namespace: false,
        no_ipc_namespace: false,
        no_mounts: false,
        no_listener: false,
        limited_exec: false,
        exec_number: None,
    };
    let denials = match policy.on_violation {
        OnViolation::Deny => Denials::Errno,
        OnViolation::Terminate => Denials::Kill,
    };
    let rules = all_rules(policy, left);
    // The gate that counts execs needs a listener, and a trace as well.
    let mut request = request(policy, needs, denials, &rules);
    (request.no_spawn, request.trace, request.addresses, request.nested) = (None, false, false, false);
    // In a network of its own what these sockets buffer would be charged to no cgroup, and nothing of ours could look.
    request.no_netlink = policy.network.mode != NetworkMode::Host;
    make(&request, arch).map_err(|e| Failure::new(Field::Seccomp, e.to_string()))
}

/// The compiled filter, as an array of `struct sock_filter`.
///
/// # Errors
/// A rule that names no known call, or a filter that is too long.
pub(super) fn program(policy: &Policy, left: LeftToFilter) -> Result<Vec<u8>, Failure> {
    compiled(policy, left, compile).map(|program| FilterProgram::bytes(&program.filter))
}

/// The filter as Kafel text.
///
/// # Errors
/// As [`program`].
pub(super) fn text(policy: &Policy, left: LeftToFilter) -> Result<String, Failure> {
    compiled(policy, left, kafel::policy)
}

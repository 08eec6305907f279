//! From a policy to a compiled system call filter.

use std::path::Path;
use std::sync::OnceLock;

use cofferdam_confine::host::{resource, rlimit};
use cofferdam_confine::seccomp::{
    Arch, ArgComparison, Condition, Denials, ExecGate, FilterProgram, FilterRule, NoSpawn, RuleAction, SeccompRequest,
    SyscallLevel, compile,
};
use cofferdam_confine::wire::fd;
use cofferdam_policy::{
    ArgOp, AuditLevel, Field, NetworkMode, OnViolation, Policy, SeccompLevel, SyscallAction, errno_from_name,
};

use crate::failure::Failure;

/// A compiled filter and its classifier, as init takes them: 8 bytes per instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompiledFilter {
    /// For the kernel.
    pub filter: Vec<u64>,
    /// For init.
    pub classifier: Vec<u64>,
}

/// What differs between backends and runs; nothing does from a jail that guards no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Needs {
    /// Names must be guarded: calls that make them go through init.
    pub guards: bool,
    /// Some of these names are symbolic links that exist: removing names goes through init as well.
    pub links: bool,
    /// There is no network namespace: sockets are refused whole.
    pub no_net_namespace: bool,
    /// The network namespace is another's making and has loopback up, and nothing else.
    pub own_net_namespace: bool,
    /// There is no ipc namespace.
    pub no_ipc_namespace: bool,
    /// There are no mounts: metadata changes are refused.
    pub no_mounts: bool,
    /// No listener can be had: refusals are told to nobody, and nobody counts execs.
    pub no_listener: bool,
    /// Only some programs may be executed.
    pub limited_exec: bool,
    /// The number that the one program has without spawning, where init's limit of open files is not this process's.
    pub exec_number: Option<u32>,
}

/// The policy's own rules, as the emitter takes them.
pub(crate) fn rules(policy: &Policy) -> Vec<FilterRule> {
    let rule = |r: &cofferdam_policy::SyscallRule| FilterRule {
        syscalls: r.syscalls.clone(),
        action: match &r.action {
            SyscallAction::Kill => RuleAction::Kill,
            SyscallAction::Errno(name) => RuleAction::Errno(errno_from_name(name).unwrap_or(1) as u16),
        },
        when: r
            .when
            .iter()
            .map(|c| Condition {
                index: c.index,
                mask: c.mask,
                op: match c.op {
                    ArgOp::Eq => ArgComparison::Eq,
                    ArgOp::Ne => ArgComparison::Ne,
                    ArgOp::Lt => ArgComparison::Lt,
                    ArgOp::Le => ArgComparison::Le,
                    ArgOp::Gt => ArgComparison::Gt,
                    ArgOp::Ge => ArgComparison::Ge,
                },
                value: c.value,
            })
            .collect(),
    };
    policy.process.seccomp.rules.iter().map(rule).collect()
}

/// What the filter of a policy has to hold.
pub(crate) fn request<'a>(
    policy: &Policy,
    needs: Needs,
    denials: Denials,
    rules: &'a [FilterRule],
) -> SeccompRequest<'a> {
    let gate = if needs.no_listener { ExecGate::Open } else { ExecGate::Notify };
    SeccompRequest {
        level: match policy.process.seccomp.level {
            SeccompLevel::Disabled => SyscallLevel::Disabled,
            SeccompLevel::Basic => SyscallLevel::Basic,
            SeccompLevel::Standard => SyscallLevel::Standard,
            SeccompLevel::Strict => SyscallLevel::Strict,
        },
        denials,
        notify_creates: needs.guards,
        notify_removes: needs.links,
        trace: policy.audit.trace,
        addresses: ends_at_addresses(policy, needs),
        // What is reported of addresses is for those who want to hear of refusals, and slows down every connection.
        connects: denials == Denials::Notify
            && matches!(policy.network.mode, NetworkMode::None | NetworkMode::Loopback)
            && judges_addresses(needs),
        no_spawn: (!policy.process.spawn)
            .then_some(NoSpawn { exec_fd: needs.exec_number.unwrap_or_else(exec_number), gate }),
        unix_sockets: policy.process.unix_sockets,
        // gVisor answers from memory of its own whatever pool the host has, and a filter that is exported meets other hosts.
        huge_pages: needs.no_listener || huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        no_netlink: false,
        no_network_sockets: needs.no_net_namespace
            && policy.network.mode == NetworkMode::None
            && !(needs.own_net_namespace && ends_at_addresses(policy, needs)),
        private_ipc: !needs.no_ipc_namespace,
        metadata_refused: needs.no_mounts,
        core_limit: false,
        nested: policy.process.nested_sandboxes && !needs.no_mounts,
        limited_exec: needs.limited_exec
            || policy.process.seccomp.level == SeccompLevel::Strict
            || !policy.process.spawn,
        rules,
    }
}

/// Whether an address that the program wants to reach ends the run: making a socket is no attempt to use the network, and
/// where there is a network namespace of its own nobody can go further with one without naming an address.
fn ends_at_addresses(policy: &Policy, needs: Needs) -> bool {
    policy.network.mode == NetworkMode::None && policy.on_violation == OnViolation::Terminate && judges_addresses(needs)
}

/// Whether init can tell which addresses are refused: it looks on, and a network namespace of the sandbox's own refuses them.
fn judges_addresses(needs: Needs) -> bool {
    !needs.no_listener && (needs.own_net_namespace || !needs.no_net_namespace)
}

/// Whether this host has a pool of huge pages, or may make one on demand, by the kernel's directory of pools. What cannot be
/// read counts as one.
fn huge_pages(directory: &Path) -> bool {
    let pools = match std::fs::read_dir(directory) {
        Ok(pools) => pools,
        Err(e) => return e.kind() != std::io::ErrorKind::NotFound,
    };
    let has =
        |pool: &Path, file: &str| std::fs::read_to_string(pool.join(file)).map_or(true, |number| number.trim() != "0");
    pools.flatten().any(|pool| ["nr_hugepages", "nr_overcommit_hugepages"].iter().any(|file| has(&pool.path(), file)))
}

/// Where init puts the one program that may be executed: both work it out of the limit that this process passes on.
fn exec_number() -> u32 {
    fd::exec(rlimit(resource::NOFILE).1).unsigned_abs()
}

/// Compiles it.
///
/// # Errors
/// A rule that names no known call, or a filter that is too long.
pub(crate) fn build(policy: &Policy, needs: Needs) -> Result<CompiledFilter, Failure> {
    let Some(arch) = Arch::native() else {
        return Err(Failure::new(Field::Seccomp, "no filter exists for this architecture"));
    };
    let most = rlimit(resource::NOFILE).1;
    if !policy.process.spawn && most < fd::LEAST_HARD {
        return Err(Failure::new(Field::Spawn, format!(
                "without spawning the program is held open, for which this process's hard limit of {most} open files is too low"
            )).hint(format!(
                "raise it to {} or more: ulimit -Hn; in another sandbox, its --open-files",
                fd::LEAST_HARD
            )));
    }
    let rules = rules(policy);
    // What nobody wants to hear of the kernel refuses alone. A refusal that ends the run is init's to hear of, and where
    // init cannot hear anything the kernel's to end.
    let terminates = policy.on_violation == OnViolation::Terminate;
    let denials = match (needs.no_listener, terminates) {
        (true, true) => Denials::Kill,
        (true, false) => Denials::Errno,
        (false, true) => Denials::Notify,
        (false, false) if policy.audit.records(AuditLevel::Info) => Denials::Notify,
        (false, false) => Denials::Errno,
    };
    let program = compile(&request(policy, needs, denials, &rules), arch)
        .map_err(|e| Failure::new(Field::Seccomp, e.to_string()))?;
    let words = |insns: &[cofferdam_confine::seccomp::classify::Insn]| {
        FilterProgram::bytes(insns)
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()))
            .collect()
    };
    Ok(CompiledFilter { filter: words(&program.filter), classifier: words(&program.classifier) })
}

/// The filters of a policy, compiled when first needed.
#[derive(Debug)]
pub(crate) struct Filters {
    needs: Needs,
    plain: OnceLock<Result<CompiledFilter, Failure>>,
    guarded: OnceLock<Result<CompiledFilter, Failure>>,
    linked: OnceLock<Result<CompiledFilter, Failure>>,
}

impl Filters {
    pub(crate) fn new(needs: Needs) -> Filters {
        Filters { needs, plain: OnceLock::new(), guarded: OnceLock::new(), linked: OnceLock::new() }
    }

    /// The filter for a plan with or without guards, and with links among the guarded names.
    ///
    /// # Errors
    /// The policy's rules cannot be compiled.
    pub(crate) fn get(&self, policy: &Policy, guards: bool, links: bool) -> Result<&CompiledFilter, Failure> {
        let slot = match (guards, links) {
            (false, _) => &self.plain,
            (true, false) => &self.guarded,
            (true, true) => &self.linked,
        };
        slot.get_or_init(|| build(policy, Needs { guards, links, ..self.needs })).as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::Audit;

    use super::*;

    #[test]
    fn a_pool_of_huge_pages_is_seen_where_it_has_pages_or_may_get_some() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("hugepages");
        assert!(!huge_pages(&directory), "the kernel has no huge pages");
        std::fs::create_dir(&directory).unwrap();
        assert!(!huge_pages(&directory), "it has no pools");
        for size in ["hugepages-2048kB", "hugepages-1048576kB"] {
            let pool = directory.join(size);
            std::fs::create_dir(&pool).unwrap();
            for file in ["nr_hugepages", "nr_overcommit_hugepages"] {
                std::fs::write(pool.join(file), "0\n").unwrap();
            }
        }
        assert!(!huge_pages(&directory), "all are empty");
        for file in ["hugepages-2048kB/nr_hugepages", "hugepages-1048576kB/nr_overcommit_hugepages"] {
            std::fs::write(directory.join(file), "16\n").unwrap();
            assert!(huge_pages(&directory), "{file}");
            std::fs::write(directory.join(file), "0\n").unwrap();
        }
        std::fs::remove_file(directory.join("hugepages-2048kB/nr_overcommit_hugepages")).unwrap();
        assert!(huge_pages(&directory), "what cannot be read counts as one");
    }

    #[test]
    fn a_filter_notifies_only_where_refusals_are_wanted() {
        let needs = Needs::default();
        let asks = |level, on_violation, needs| {
            let audit = Audit { enabled: true, level, trace: false };
            let policy = Policy { audit, on_violation, ..Policy::base() };
            !build(&policy, needs).unwrap().classifier.is_empty()
        };
        assert!(asks(AuditLevel::Info, OnViolation::Deny, needs));
        assert!(!asks(AuditLevel::Warning, OnViolation::Deny, needs));
        assert!(asks(AuditLevel::Warning, OnViolation::Terminate, needs), "a refusal ends the run");
        assert!(
            asks(AuditLevel::Warning, OnViolation::Deny, Needs { guards: true, ..needs }),
            "guards are asked anyway"
        );
        assert!(!asks(AuditLevel::Info, OnViolation::Deny, Needs { no_listener: true, ..needs }));
    }
}

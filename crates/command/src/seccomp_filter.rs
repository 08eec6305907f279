//! The seccomp filter of a command: what Landlock cannot express, as rules on system calls. It decides by numbers
//! alone; calls whose objects have to be inspected go to the notification supervisor (`cofferdam_confine::command`).

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_confine::command::{SCHEDULING_CALLS, SIGNAL_CALLS};
use cofferdam_confine::seccomp::{
    self, Arch, ArgComparison, Condition, Denials, METADATA_IOCTLS, RuleAction, SeccompRequest, SyscallLevel,
    TREE_IOCTLS, classify::Insn,
};

use crate::confinement_spec::CommandNetwork;
use crate::error::ConfineReason;
use crate::kernel_support::KernelSupport;

/// Commands of `fcntl` and `ioctl` that make the kernel send signals later: `F_SETOWN` and the like.
const OWNERS: [(&str, u64); 5] = [("fcntl", 8), ("fcntl", 10), ("fcntl", 15), ("ioctl", 0x8901), ("ioctl", 0x8902)];

/// Calls that create mounts, and descriptors of them.
const MOUNTS: [&str; 8] =
    ["fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr", "move_mount", "mount_setattr"];

/// Calls on keyrings, which belong to the user and not to the process; on files by handle, which bypasses paths; and on
/// page faults, by which a command could block the notification supervisor that reads its memory.
const ASKED_OF_OTHERS: [&str; 4] = ["add_key", "keyctl", "open_by_handle_at", "userfaultfd"];

/// `F_SETLEASE`
const F_SETLEASE: u64 = 1024;

/// Keys of encrypted directories, of the whole file system: `FS_IOC_ADD_ENCRYPTION_KEY`, `FS_IOC_REMOVE_ENCRYPTION_KEY`
/// and its form for all users. Any descriptor on it will do.
const ENCRYPTION_KEYS: [u64; 3] = [0xc050_6617, 0xc040_6618, 0xc040_6619];

/// Compiles the filter, once for equal arguments.
pub(crate) fn filter(support: KernelSupport) -> Result<Arc<[Insn]>, ConfineReason> {
    static COMPILED: Mutex<Option<HashMap<KernelSupport, Arc<[Insn]>>>> = Mutex::new(None);
    let Some(arch) = Arch::native() else { return Ok(Arc::new([])) };
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = compiled.get_or_insert_default();
    if let Some(known) = compiled.get(&support) {
        return Ok(known.clone());
    }
    let rules = rules(support, arch);
    let request = SeccompRequest {
        // The kernel checks an unprivileged process; a privileged one could bypass every restriction.
        level: if support.privileged { SyscallLevel::Basic } else { SyscallLevel::Disabled },
        denials: Denials::Errno,
        notify_creates: false,
        notify_removes: false,
        trace: false,
        addresses: false,
        connects: false,
        no_spawn: None,
        unix_sockets: support.unix_sockets,
        huge_pages: false,
        no_netlink: false,
        no_network_sockets: support.network == CommandNetwork::None,
        private_ipc: support.shared_ipc,
        metadata_refused: !support.keeper,
        core_limit: true,
        nested: false,
        limited_exec: false,
        rules: &rules,
    };
    let program = seccomp::compile(&request, arch).map_err(|error| ConfineReason::Prepare {
        step: "seccomp filter".into(),
        source: io::Error::other(error).into(),
    })?;
    let filter: Arc<[Insn]> = program.filter.into();
    compiled.insert(support, filter.clone());
    Ok(filter)
}

fn rules(support: KernelSupport, arch: Arch) -> Vec<seccomp::FilterRule> {
    let rule = |calls: &[&str], action, when| seccomp::FilterRule {
        syscalls: calls.iter().map(|call| (*call).to_owned()).collect(),
        action,
        when,
    };
    let is = |index, value| Condition { index, mask: u64::MAX, op: ArgComparison::Eq, value };
    let refused = |errno: i32| RuleAction::Errno(errno as u16);
    let mut rules = Vec::new();
    // Landlock refuses to mount, but not to make a mount that hangs nowhere, which anybody may in a user namespace of
    // their own. An overlay empties its work directory by that alone, wherever it lies.
    rules.push(rule(&MOUNTS, refused(EPERM), Vec::new()));
    // A limit of processor time is a signal, and one of descriptors the end of the caller's work; the kernel asks for
    // no more than the same ids. Landlock does not hold it. One's own limits are those of process 0.
    let given = |index| Condition { op: ArgComparison::Ne, ..is(index, 0) };
    rules.push(rule(&["prlimit64"], refused(EPERM), vec![given(0), given(2)]));
    rules.push(rule(&ASKED_OF_OTHERS, refused(EPERM), Vec::new()));
    // A lease blocks other processes that open the file, until the kernel breaks it, and needs only read access.
    rules.push(rule(&["fcntl"], refused(EPERM), vec![is(1, F_SETLEASE)]));
    rules.extend(TREE_IOCTLS.map(|command| rule(&["ioctl"], refused(EPERM), vec![is(1, command)])));
    rules.extend(ENCRYPTION_KEYS.map(|command| rule(&["ioctl"], refused(EPERM), vec![is(1, command)])));
    // A process group and a user include other processes, and any id but 0 may be another's: the supervisor checks it.
    for (call, process) in [("setpriority", 0), ("ioprio_set", 1)] {
        rules.push(rule(&[call], refused(EPERM), vec![Condition { op: ArgComparison::Ne, ..is(0, process) }]));
    }
    for call in SCHEDULING_CALLS {
        let number = u8::from(["setpriority", "ioprio_set"].contains(&call));
        let action = if support.keeper { RuleAction::Perform } else { refused(EPERM) };
        rules.push(rule(&[call], action, vec![given(number)]));
    }
    if support.keeper {
        let calls: Vec<&str> = seccomp::metadata_calls(arch).collect();
        rules.push(rule(&calls, RuleAction::Perform, Vec::new()));
        rules.extend(METADATA_IOCTLS.map(|command| rule(&["ioctl"], refused(EPERM), vec![is(1, command)])));
    }
    if support.filters_truncation() {
        rules.push(rule(&["truncate"], refused(EACCES), Vec::new()));
        // To truncate what is not opened for writing: read-only, and the mode that is neither.
        for (call, flags) in [("open", 1), ("openat", 2)] {
            for mode in [0, 3] {
                let opened = Condition { index: flags, mask: ACCESS_MODE, op: ArgComparison::Eq, value: mode };
                let truncated = Condition { index: flags, mask: TRUNCATE, op: ArgComparison::Ne, value: 0 };
                rules.push(rule(&[call], refused(EACCES), vec![opened, truncated]));
            }
        }
    }
    if support.keeps_signals() {
        // Programs that get ENOSYS use kill(2).
        rules.push(rule(&["pidfd_send_signal"], refused(ENOSYS), Vec::new()));
        let calls: Vec<&str> = SIGNAL_CALLS.into_iter().filter(|call| *call != "pidfd_send_signal").collect();
        rules.push(rule(&calls, RuleAction::Perform, Vec::new()));
        rules.extend(OWNERS.map(|(call, command)| rule(&[call], refused(EPERM), vec![is(1, command)])));
    }
    rules
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;
/// `O_ACCMODE`
const ACCESS_MODE: u64 = 3;
/// `O_TRUNC`
const TRUNCATE: u64 = 0o1000;

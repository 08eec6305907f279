//! Sockets that need no network. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting, Twin, Victim};
use crate::run::Run;

const ROW: Attack = Attack { class: Class::Sockets, fields: &[Field::UnixSockets], ..ATTACK };

/// Sockets that need no network.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "path-socket",
        why: "Connects to a socket in the host's tree",
        args: &["unix", "{out}/docker.sock"],
        victims: &[Victim::Stream("{out}/docker.sock")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "path-socket-read-only-bind",
        why: "Connects to a tmux-like socket in a read-only bind",
        args: &["unix", "{ro}/default"],
        settings: &[Setting::Ro],
        victims: &[Victim::Stream("{ro}/default")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "path-socket-writable-bind",
        why: "Connects to a D-Bus-like socket in a writable bind",
        args: &["unix", "{rw}/bus"],
        settings: &[Setting::Rw],
        victims: &[Victim::Stream("{rw}/bus")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "path-socket-unfiltered",
        why: "Connects at level disabled",
        args: &["unix", "{out}/docker.sock"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Stream("{out}/docker.sock")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "path-datagram",
        why: "Sends to a datagram socket",
        args: &["unix-dgram", "{out}/log"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-sendto",
        why: "Re-addresses one end of a socketpair with sendto",
        args: &["pair-sendto", "{out}/log"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-connect",
        why: "Re-connects one end of a socketpair",
        args: &["pair-connect", "{out}/log"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-sendmmsg",
        why: "Re-addresses one end of a socketpair with sendmmsg",
        args: &["pair-sendmmsg", "{out}/log"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-abstract",
        why: "The same to an abstract socket",
        args: &["pair-sendto", "{abstract}"],
        victims: &[Victim::Dgram("{abstract}")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-raw",
        why: "The same from a pair of type SOCK_RAW, another name for datagrams",
        args: &["pair-sendto", "{out}/log", "3"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-flags",
        why: "The same with SOCK_CLOEXEC and SOCK_NONBLOCK in the type",
        args: &["pair-sendto", "{out}/log", "0x80802"],
        victims: &[Victim::Dgram("{out}/log")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "socketpair-stream",
        why: "Re-connects one end of a pair of streams, which are always granted",
        args: &["pair-reconnect", "{out}/docker.sock"],
        victims: &[Victim::Stream("{out}/docker.sock")],
        proof: Proof::Received,
        twin: Twin::Dose(&[], &["pair-echo"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "abstract-socket",
        why: "Connects to an abstract socket of the host",
        args: &["unix", "{abstract}"],
        victims: &[Victim::Stream("{abstract}")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "abstract-socket-granted",
        why: "The same with sockets granted: the name is another network's",
        args: &["unix", "{abstract}"],
        fields: &[Field::Isolation],
        settings: &[Setting::Unix],
        victims: &[Victim::Stream("{abstract}")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "scm-rights-by-path",
        why: "Hands a descriptor to another sandbox by a shared directory",
        args: &["scm-send", "{rw}/meet", "{rw}/secret"],
        settings: &[Setting::Rw],
        victims: &[Victim::Sandbox(&["scm-receive", "{rw}/meet"])],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "scm-rights-abstract",
        why: "Hands a descriptor to another sandbox by an abstract name, sockets granted",
        args: &["scm-send", "{abstract}", "{ro}/secret"],
        fields: &[Field::Isolation],
        settings: &[Setting::Ro, Setting::Unix],
        victims: &[Victim::Sandbox(&["scm-receive", "{abstract}"])],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "vsock",
        why: "A vsock socket to the hypervisor",
        args: &["vsock-bind"],
        fields: &[Field::Seccomp],
        needs: Some("/dev/vsock"),
        ..ROW
    },
    Attack {
        name: "vsock-unfiltered",
        why: "A vsock socket at level disabled",
        args: &["socket", "40", "1", "0"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        needs: Some("/dev/vsock"),
        ..ROW
    },
    Attack {
        name: "packet-socket",
        why: "A packet socket",
        args: &["socket", "17", "3", "0"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "netlink-uevent",
        why: "A netlink socket for kernel events",
        args: &["socket", "16", "2", "15"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "netlink-audit",
        why: "A netlink socket for audit",
        args: &["socket", "16", "3", "9"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "netlink-generic",
        why: "A generic netlink socket",
        args: &["socket", "16", "3", "16"],
        fields: &[Field::Seccomp],
        ..ROW
    },
];

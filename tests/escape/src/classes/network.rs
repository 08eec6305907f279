//! The network. Data only.

use cofferdam_policy::{Field, NetworkMode, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Network, fields: &[Field::Network], ..ATTACK };

/// The network.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "tcp",
        why: "Connects to a listener of the host",
        args: &["tcp", "{port}"],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "tcp-unfiltered",
        why: "The same at level disabled",
        args: &["tcp", "{port}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "tcp-with-loopback",
        why: "The same where a loopback of its own is granted",
        args: &["tcp", "{port}"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "tcp-mapped-address",
        why: "By an IPv4-mapped IPv6 address",
        args: &["tcp6", "{port}"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "mptcp",
        why: "By MPTCP, protocol 262",
        args: &["tcp", "{port}", "262"],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "mptcp-with-loopback",
        why: "By MPTCP where loopback is granted",
        args: &["tcp", "{port}", "262"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "fast-open",
        why: "sendto with MSG_FASTOPEN, no connect",
        args: &["fastopen", "{port}"],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "fast-open-with-loopback",
        why: "The same where loopback is granted",
        args: &["fastopen", "{port}"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Tcp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "udp",
        why: "Sends a datagram to the host",
        args: &["udp", "{port}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Udp],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "udp-with-loopback",
        why: "The same where loopback is granted",
        args: &["udp", "{port}"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Udp],
        held: &[End::Any],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "listen",
        why: "Listens where the host's users connect",
        args: &["listen", "{port}"],
        settings: &[Setting::Net(NetworkMode::Loopback)],
        victims: &[Victim::Dialer],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "raw-socket",
        why: "A raw socket",
        args: &["socket", "2", "3", "1"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
];

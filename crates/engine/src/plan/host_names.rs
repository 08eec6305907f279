//! What a sandbox's files say of host names: nothing but its own, with what the host's files say where the host's network was
//! asked for, since names belong to it, and the gateway's resolver where that is the way out.

use std::fs;

use cofferdam_policy::{NetworkMode, Policy};

/// The files that say how names are looked up.
pub(crate) const FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// No resolver reads more than that of them (resolv.conf(5) knows three servers).
const MOST: u64 = 64 << 10;

/// Whether the sandbox looks names up as the host does.
pub(crate) fn are_the_hosts(policy: &Policy) -> bool {
    policy.network.mode == NetworkMode::Host
}

/// The text of the sandbox's `/etc/hosts`. It has the sandbox's own name, which programs look up, as Java's do.
pub(crate) fn hosts(policy: &Policy) -> String {
    let name = &policy.process.hostname;
    let knows = |text: &str| {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        lines.flat_map(|line| line.split_whitespace().skip(1)).any(|known| known.eq_ignore_ascii_case(name))
    };
    match the_hosts(policy, FILES[0]) {
        Some(text) if knows(&text) => text,
        Some(text) => {
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            format!("{text}{end}127.0.0.1 {name}\n")
        }
        // Of two addresses libc tries with sockets which one it has a way to, and without a network there is none.
        None if policy.network.mode == NetworkMode::None => format!("127.0.0.1 localhost {name}\n"),
        None => format!("127.0.0.1 localhost {name}\n::1 localhost\n"),
    }
}

/// The text of the sandbox's `/etc/resolv.conf`.
pub(crate) fn resolver(policy: &Policy) -> String {
    the_hosts(policy, FILES[1]).unwrap_or_default()
}

/// How the libraries look names up: in files, then by the resolver.
pub(crate) const ORDER: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// In a captured network the files are these in every root view: path, name in the scratch, text. Whoever reads none of
/// them and asks a resolver by its address is answered all the same.
pub(crate) fn captured(policy: &Policy) -> [(&'static str, &'static str, String); 3] {
    [
        (FILES[0], "hosts", hosts(policy)),
        (FILES[1], "resolver", format!("nameserver {}\n", cofferdam_egress::layout::INSIDE)),
        ("/etc/nsswitch.conf", "lookup", ORDER.to_owned()),
    ]
}

fn the_hosts(policy: &Policy, path: &str) -> Option<String> {
    if !are_the_hosts(policy) || fs::metadata(path).is_ok_and(|meta| !meta.is_file() || meta.len() > MOST) {
        return None;
    }
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_names_are_known_with_its_network_alone() {
        let mut policy = Policy::base();
        assert_eq!(hosts(&policy), "127.0.0.1 localhost sandbox\n");
        policy.network.mode = NetworkMode::Loopback;
        assert_eq!(hosts(&policy), "127.0.0.1 localhost sandbox\n::1 localhost\n");
        assert_eq!(resolver(&policy), "");
        policy.network.mode = NetworkMode::Host;
        if let Ok(text) = fs::read_to_string(FILES[0]) {
            assert!(hosts(&policy).starts_with(&text) && hosts(&policy).ends_with("127.0.0.1 sandbox\n"));
            policy.process.hostname = "localhost".into();
            assert_eq!(hosts(&policy), text, "a name that it knows");
        }
        if let Ok(text) = fs::read_to_string(FILES[1]) {
            assert_eq!(resolver(&policy), text);
        }
    }
}

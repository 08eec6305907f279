//! What a policy's allowed hosts become: the gateway's rules and sockets, and what init does to the network namespace so that
//! every connection arrives there.
//!
//! Decides nothing about a connection: the gateway does (`run::gateway`).

use std::sync::{Arc, OnceLock};

use cofferdam_confine::capture::{self, Capture, IpVersion, Versions};
use cofferdam_egress::layout::{API_PORT, HTTP_PROXY_PORT, INSIDE, LayoutSocket, SOCKS_PORT, SocketLayout};
use cofferdam_egress::rules::EgressRules;
use cofferdam_egress::socket_owner::can_inspect;
use cofferdam_policy::{Field, NetworkMode, Policy};

use crate::failure::Failure;
use crate::outcome::AppliedField;

/// How the network of a policy with allowed hosts is captured and filtered.
#[derive(Debug, Clone)]
pub(crate) struct EgressPlan {
    pub(crate) rules: Arc<EgressRules>,
    pub(crate) layout: SocketLayout,
    versions: Versions,
}

impl EgressPlan {
    /// For the mode `allowlist`; `None` for the others.
    ///
    /// # Errors
    /// The rules name more ports than can be caught here.
    pub(crate) fn of(policy: &Policy) -> Result<Option<EgressPlan>, Failure> {
        if policy.network.mode != NetworkMode::Allowlist {
            return Ok(None);
        }
        if cfg!(not(feature = "gateway")) {
            let message = "network.mode = \"allowlist\" needs the egress gateway, which is not built into this program";
            return Err(Failure::new(Field::Network, message).hint("build cofferdam-engine with its feature `gateway`"));
        }
        let versions = capture::versions();
        let rules = EgressRules::compile(&policy.network);
        // The kernel is asked only where it matters: it takes a namespace.
        let layout = match rules.layout(false) {
            Ok(layout) => Ok(layout),
            Err(_) => redirects(versions).and_then(|()| rules.layout(true).map_err(|e| e.to_string())),
        };
        let mut layout = layout.map_err(|why| too_many(&why))?;
        layout.sockets.push(LayoutSocket::Attempts { ipv6: false });
        if versions == Versions::Both {
            layout.sockets.push(LayoutSocket::Attempts { ipv6: true });
        }
        if can_inspect() {
            layout.sockets.push(LayoutSocket::Inspector);
        }
        Ok(Some(EgressPlan { rules: Arc::new(rules), layout, versions }))
    }

    /// What init makes of the namespace.
    pub(crate) fn capture(&self) -> Capture {
        let listeners: Vec<u16> = self.layout.sockets.iter().filter_map(port).collect();
        let mut capture = Capture::new(self.versions);
        for socket in &self.layout.sockets {
            if let LayoutSocket::Redirect(to) = socket {
                capture.redirect(&self.layout.redirected, *to, self.versions);
            }
            capture.sockets.push(match *socket {
                LayoutSocket::Resolver => capture::CaptureSocket::resolver(self.versions),
                LayoutSocket::Listener(port) | LayoutSocket::Redirect(port) => {
                    capture::CaptureSocket::listener(port, self.versions)
                }
                LayoutSocket::Attempts { ipv6: false } => capture::CaptureSocket::attempts(IpVersion::Four, &listeners),
                LayoutSocket::Attempts { ipv6: true } => capture::CaptureSocket::attempts(IpVersion::Six, &listeners),
                LayoutSocket::Inspector => capture::CaptureSocket::inspector(),
            });
        }
        capture
    }

    /// How strongly the mode holds, and by what.
    pub(crate) fn applied(&self) -> AppliedField {
        let version = match self.versions {
            Versions::Both => "",
            Versions::Four => "; there is no IPv6 here, and so none inside",
        };
        let reason = format!(
            "a network namespace in which every TCP connection arrives at the egress gateway and all else is refused; names by \
             its resolver alone; the names in TLS greetings and HTTP requests must be the ones that were asked for{version}"
        );
        AppliedField { strength: crate::outcome::Strength::Full, reason }
    }
}

fn too_many(why: &str) -> Failure {
    let most = cofferdam_egress::layout::MOST_LISTENERS;
    let hint = format!(
        "name fewer ports, at most {most} in all, or load what redirects them: modprobe -a nft_chain_nat nft_redir"
    );
    let message = format!(
        "network.allow names more ports than there can be listeners, and they cannot be redirected here: {why}"
    );
    Failure::new(Field::Network, message).hint(hint)
}

fn port(socket: &LayoutSocket) -> Option<u16> {
    match *socket {
        LayoutSocket::Listener(port) | LayoutSocket::Redirect(port) => Some(port),
        LayoutSocket::Resolver | LayoutSocket::Attempts { .. } | LayoutSocket::Inspector => None,
    }
}

/// Whether ports can be redirected here; asked of the kernel once.
pub(crate) fn redirects(versions: Versions) -> Result<(), String> {
    static KNOWN: OnceLock<Result<(), String>> = OnceLock::new();
    let ask = || {
        let mut capture = Capture::new(versions);
        capture.redirect(&[(1, u16::MAX)], 1, versions);
        capture::attempt(&capture).map_err(|(what, e)| format!("cannot {what}: {e}"))
    };
    KNOWN.get_or_init(ask).clone()
}

/// The variables that tell clients of the gateway's proxies, which nothing depends on. What the policy names in either
/// case is the policy's.
pub(crate) fn variables(policy: &Policy) -> Vec<(String, String)> {
    if policy.network.mode != NetworkMode::Allowlist {
        return Vec::new();
    }
    let proxy = format!("http://{INSIDE}:{HTTP_PROXY_PORT}");
    let any = format!("socks5h://{INSIDE}:{SOCKS_PORT}");
    let named = |name: &str| policy.command.variables.keys().any(|own| own.eq_ignore_ascii_case(name));
    let api = policy.network.api.as_ref().filter(|api| !policy.command.variables.contains_key(&api.variable));
    let mut list: Vec<(String, String)> =
        api.map(|api| (api.variable.clone(), format!("http://{INSIDE}:{API_PORT}"))).into_iter().collect();
    for (name, value) in [
        ("HTTP_PROXY", proxy.as_str()),
        ("HTTPS_PROXY", &proxy),
        ("ALL_PROXY", &any),
        ("NO_PROXY", "localhost,127.0.0.1,::1"),
    ] {
        if !named(name) {
            list.push((name.to_owned(), value.to_owned()));
            list.push((name.to_lowercase(), value.to_owned()));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::NetworkApi;

    use super::*;

    #[test]
    fn proxies_are_named_in_both_cases_unless_the_policy_names_one() {
        let mut policy = Policy::base();
        assert!(variables(&policy).is_empty());
        policy.network.mode = NetworkMode::Allowlist;
        policy.command.variables.insert("https_proxy".into(), String::new());
        let names: Vec<String> = variables(&policy).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]);
        let url = "http://127.0.0.1:8000/v1".parse().unwrap();
        policy.network.api = Some(NetworkApi { url, variable: "ISCL_API_URL".into() });
        let api = ("ISCL_API_URL".to_owned(), "http://127.0.0.1:3129".to_owned());
        assert_eq!(variables(&policy).first(), Some(&api));
        policy.command.variables.insert("ISCL_API_URL".into(), "mine".into());
        assert!(!variables(&policy).contains(&api));
    }
}

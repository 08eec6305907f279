//! The built-in policy, and which of its fields are required.
//!
//! Fields that the user names are required, the others are enforced as far as the host allows: built-in limits are best
//! effort until they are named, and isolation never is unless the user asks for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::field::Field;
use crate::limits::LIMITS;
use crate::model::*;
use crate::protected::PROTECTED_DEFAULT;
use crate::url::HttpUrl;

/// The home of a sandbox that is given none: in scratch space.
pub const OWN_HOME: &str = "/tmp/home";

/// The variables of a program that is given none.
pub(crate) const VARIABLES_DEFAULT: &[(&str, &str)] = &[
    ("HOME", OWN_HOME),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("TERM", "dumb"),
    ("USER", "sandbox"),
];

/// The host name of a sandbox that is given none.
pub(crate) const HOSTNAME_DEFAULT: &str = "sandbox";

/// The default variable with the address of `network.api`.
pub const API_VARIABLE_DEFAULT: &str = "ISCL_API_URL";

impl Policy {
    /// The policy that `{"version": 1}` stands for: the minimal root, no network, the standard system call
    /// filter, the built-in limits, and no command yet.
    pub fn base() -> Policy {
        Policy {
            version: VERSION,
            id: None,
            description: None,
            command: Command { variables: default_variables(), ..Command::default() },
            filesystem: Filesystem {
                root: Root::Minimal,
                mounts: Vec::new(),
                deny: Vec::new(),
                protected: default_protected(),
                identities: Default::default(),
            },
            network: Network::none(),
            process: Process {
                spawn: true,
                nested_sandboxes: false,
                seccomp: Seccomp::default(),
                unix_sockets: false,
                hostname: HOSTNAME_DEFAULT.into(),
            },
            limits: Limits::base(),
            enforcement: Enforcement { best_effort: unnamed_limits(|_| true) },
            on_violation: OnViolation::Deny,
            audit: Audit::default(),
            backend: BackendName::Auto,
        }
    }

    /// Makes a field required: nothing starts unless it is enforced in full. For callers that set a limit after
    /// decoding.
    pub fn require(&mut self, field: Field) {
        self.enforcement.best_effort.remove(&field);
    }

    /// Lets a field be held only as far as the host allows; the outcome says how far that was.
    pub fn allow_partial(&mut self, field: Field) {
        self.enforcement.best_effort.insert(field);
    }

    /// Goes out through the proxy that the host's own variables name, where hosts are listed and no proxy is named: a host
    /// that has one reaches nothing without it. The first of `HTTPS_PROXY`, `https_proxy`, `ALL_PROXY` and `all_proxy` counts,
    /// if it is an `http://` URL. Such a proxy resolves names itself, so `network.upstream_proxy` becomes best effort.
    pub fn go_by_hosts_proxy(&mut self, variable: impl Fn(&str) -> Option<String>) {
        if self.network.mode != NetworkMode::Allowlist || self.network.upstream_proxy.is_some() {
            return;
        }
        let named = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
            .into_iter()
            .find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let proxy = named.and_then(|url| url.parse::<HttpUrl>().ok()).filter(|url| !url.https);
        if let Some(proxy) = proxy {
            self.network.upstream_proxy = Some(proxy);
            self.allow_partial(Field::UpstreamProxy);
        }
    }

    /// Whether nothing may start unless this field holds in full.
    pub fn is_required(&self, field: Field) -> bool {
        !self.enforcement.best_effort.contains(&field)
    }
}

impl Network {
    /// No network.
    pub fn none() -> Network {
        Network {
            mode: NetworkMode::None,
            allow: Vec::new(),
            deny: Vec::new(),
            methods: None,
            api: None,
            upstream_proxy: None,
            limits: NetworkLimits::default(),
        }
    }

    /// Another mode than `allowlist` in place of what was there: nothing stays that has an effect with that one alone.
    pub fn replace(&mut self, mode: NetworkMode) {
        *self = Network { mode, ..Network::none() };
    }
}

impl Default for Audit {
    fn default() -> Audit {
        Audit { enabled: true, level: AuditLevel::Info, trace: false }
    }
}

impl Audit {
    /// Whether violations as grave as this are recorded.
    pub fn records(&self, grave: AuditLevel) -> bool {
        self.enabled && self.level >= grave
    }
}

/// The variables of a program that is given none.
pub(crate) fn default_variables() -> BTreeMap<String, String> {
    VARIABLES_DEFAULT.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// The protected list of a policy that has none.
pub(crate) fn default_protected() -> Vec<String> {
    PROTECTED_DEFAULT.iter().map(|path| (*path).into()).collect()
}

/// The limit fields of which no key was named. Fields with two keys are named by either.
pub(crate) fn unnamed_limits(unnamed: impl Fn(&str) -> bool) -> BTreeSet<Field> {
    let all = LIMITS.iter().map(|limit| limit.field);
    all.filter(|field| LIMITS.iter().all(|limit| limit.field != *field || unnamed(limit.key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_what_a_version_alone_stands_for() {
        assert_eq!(Policy::decode(br#"{"version":1}"#).unwrap(), Policy::base());
    }

    #[test]
    fn only_limits_are_best_effort_by_themselves() {
        let base = Policy::base();
        for field in Field::ALL {
            assert_eq!(base.is_required(*field), !field.name().starts_with("limits."), "{field}");
        }
        let mut named = base.clone();
        named.require(Field::Memory);
        assert!(named.is_required(Field::Memory) && !named.is_required(Field::CpuTime));
    }
}

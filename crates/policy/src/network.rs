//! The rules between the network's fields. Pure; `allow` and `url` parse single entries.

use std::collections::BTreeSet;

use crate::allow::{AllowEntry, AllowRule, DenyEntry, METHODS, To};
use crate::error::PolicyPlace;
use crate::host::UrlHost;
use crate::model::{Network, NetworkApi, NetworkLimits, NetworkMode};
use crate::typed::list;
use crate::url::HttpUrl;
use crate::validate::Checker;
use crate::webpath;

/// What an entry of `network.allow` or `network.deny` may be.
pub(crate) const ENTRY: &str = "HOST[:PORTS], *.SUFFIX[:PORTS], ADDRESS[/PREFIX][:PORTS] or [IPV6[/PREFIX]]:PORTS, PORTS such as `443`, `80,8000-8010` or `*`";
/// What an API's URL may be.
pub(crate) const API_URL: &str = "http(s)://HOST[:PORT][/PREFIX]";
/// What a proxy's URL may be.
pub(crate) const PROXY_URL: &str = "http://[USER:PASSWORD@]HOST:PORT";

/// What has an effect with mode `allowlist` alone.
const ONLY_ALLOWLIST: &str = "only mode `allowlist` has an effect on it";

/// Names by which clouds' machines know their metadata service. That none of its addresses is connected to is the gateway's:
/// here a mistake is named early.
const METADATA_NAMES: &[&str] = &[
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.tencentyun.com",
];

impl AllowRule {
    /// Why it cannot be about private addresses, and what is accepted; none where it is not, or can be.
    pub fn private_fault(&self) -> Option<(&'static str, &'static str)> {
        match &self.entry.to {
            _ if !self.private => None,
            _ if self.inspects() => Some((
                "other rules about the name would pass requests to that address",
                "no `methods` and no `paths` beside it",
            )),
            To::Host { name } if METADATA_NAMES.contains(&name.as_str()) => Some((
                "a cloud's metadata service, which gives this machine's credentials to any client",
                "the name of another host",
            )),
            To::Host { .. } => None,
            To::Suffix { .. } => {
                Some(("the owner of the suffix could lead any name to any private address", "one name"))
            }
            To::Net { .. } => Some(("an address leads nowhere else", "one name; an address is allowed by its entry")),
        }
    }
}

impl Checker {
    pub(crate) fn network(&mut self, at: &PolicyPlace<'_>, network: &Network) {
        let items = |count: usize| format!("[… {count} items]");
        if network.mode == NetworkMode::Allowlist {
            if network.allow.is_empty() && network.api.is_none() {
                let accepted = "at least one entry, or mode `none`";
                self.add(&at.key("allow"), "[]", "mode `allowlist` allows nothing", accepted);
            }
        } else {
            let unused = [
                ("allow", items(network.allow.len()), "no entries in this mode", network.allow.is_empty()),
                ("deny", items(network.deny.len()), "no entries in this mode", network.deny.is_empty()),
                ("api", "{…}".into(), "no API in this mode", network.api.is_none()),
                ("upstream_proxy", String::new(), "no proxy in this mode", network.upstream_proxy.is_none()),
                ("limits", "{…}".into(), "no limits in this mode", network.limits == NetworkLimits::default()),
            ];
            for (key, value, accepted, _) in unused.iter().filter(|(.., fine)| !fine) {
                self.add(&at.key(key), value, ONLY_ALLOWLIST, accepted);
            }
        }
        for (index, rule) in network.allow.iter().enumerate() {
            self.allow_rule(&at.key("allow").index(index), rule, &network.deny);
            self.narrows(&at.key("allow").index(index), rule, &network.allow);
        }
        for (index, entry) in network.deny.iter().enumerate() {
            if entry.to_string().parse().as_ref() != Ok(entry) {
                self.text(&at.key("deny").index(index), &entry.to_string(), "not in its normal form", ENTRY);
            }
        }
        if let Some(methods) = &network.methods {
            if network.mode != NetworkMode::Allowlist {
                self.add(&at.key("methods"), &items(methods.len()), ONLY_ALLOWLIST, "no methods in this mode");
            }
            self.methods(&at.key("methods"), methods, network.mode == NetworkMode::Allowlist);
        }
        if let Some(api) = &network.api {
            self.api(&at.key("api"), api);
        }
        if let Some(proxy) = &network.upstream_proxy {
            self.upstream_proxy(&at.key("upstream_proxy"), proxy);
        }
        for (limit, value) in network.limits.iter() {
            if let Some(value) = value.filter(|value| !(1..=limit.max).contains(value)) {
                let at = at.key("limits");
                self.add(&at.key(limit.key), &value.to_string(), "out of range", &limit.accepted());
            }
        }
        let NetworkLimits { connections, connections_per_host, .. } = network.limits;
        if connections_per_host > connections && connections_per_host != NetworkLimits::default().connections_per_host {
            let at = at.key("limits");
            let accepted = "at most `connections`, which hosts have together";
            self.add(&at.key("connections_per_host"), &connections_per_host.to_string(), "never reached", accepted);
        }
    }

    fn allow_rule(&mut self, at: &PolicyPlace<'_>, rule: &AllowRule, deny: &[DenyEntry]) {
        let entry = &rule.entry;
        if entry.to_string().parse::<AllowEntry>().as_ref() != Ok(entry) {
            self.text(at, &entry.to_string(), "not in its normal form", ENTRY);
        }
        if let Some((index, over)) = deny.iter().enumerate().find(|(_, over)| over.0.covers(entry)) {
            let problem = format!("network.deny[{index}] (`{over}`) denies all of it");
            self.text(at, &entry.to_string(), &problem, "what no entry of network.deny covers, or neither of both");
        }
        if let Some((problem, accepted)) = rule.private_fault() {
            self.add(&at.key("private"), "true", problem, accepted);
        }
        if let Some(methods) = &rule.methods {
            self.methods(&at.key("methods"), methods, true);
        }
        if let Some(paths) = &rule.paths {
            self.paths(&at.key("paths"), paths);
        }
    }

    /// Rules add up: methods or paths of a rule forbid nothing where another one, of all requests, covers its host and ports.
    fn narrows(&mut self, at: &PolicyPlace<'_>, rule: &AllowRule, all: &[AllowRule]) {
        let wide = |other: &AllowRule| !other.inspects() && other.entry.covers(&rule.entry);
        if rule.inspects()
            && let Some((index, over)) = all.iter().enumerate().find(|(_, other)| wide(other))
        {
            let problem = format!(
                "its methods and paths forbid nothing: rules add up, and network.allow[{index}] (`{}`) allows every request there",
                over.entry
            );
            self.text(
                at,
                &rule.entry.to_string(),
                &problem,
                "one of both rules, or the wider one for other hosts or ports",
            );
        }
    }

    fn methods(&mut self, at: &PolicyPlace<'_>, methods: &[String], must_have_one: bool) {
        if methods.is_empty() && must_have_one {
            let accepted = "at least one method; leave the key out for all, or mode `none` for no request";
            self.add(at, "[]", "no request could be made", accepted);
        }
        let mut seen = BTreeSet::new();
        for (index, method) in methods.iter().enumerate() {
            let at = at.index(index);
            if method.eq_ignore_ascii_case("CONNECT") {
                self.text(&at, method, "opens a tunnel, in which any method passes", "where it leads to, in `allow`");
            } else if !METHODS.contains(&method.as_str()) {
                // Methods are case-sensitive (RFC 9110, 9.1).
                let close = METHODS.iter().find(|known| method.eq_ignore_ascii_case(known));
                let close = close.map_or_else(String::new, |close| format!("; did you mean `{close}`?"));
                let accepted = format!("one of {}{close}", list(METHODS.iter().copied()));
                self.text(&at, method, "not a method of HTTP", &accepted);
            } else if !seen.insert(method) {
                self.text(&at, method, "listed twice", "each method once");
            }
        }
    }

    fn paths(&mut self, at: &PolicyPlace<'_>, paths: &[String]) {
        if paths.is_empty() {
            self.add(at, "[]", "no request could be made", "at least one path; leave the key out for all");
        }
        let mut seen = BTreeSet::new();
        for (index, path) in paths.iter().enumerate() {
            let accepted = "a path as requests have it, such as `/v1/models`, or all below one, such as `/v1/*`";
            if let Some(problem) = webpath::pattern_fault(path) {
                self.text(&at.index(index), path, problem, accepted);
            } else if !seen.insert(path) {
                self.text(&at.index(index), path, "listed twice", "each path once");
            }
        }
    }

    fn api(&mut self, at: &PolicyPlace<'_>, api: &NetworkApi) {
        if api.url.credentials.is_some() {
            let accepted = format!("{API_URL}; what the API asks for, the program sends");
            self.add(&at.key("url"), &format!("\"{}\"", api.url), "a user or a password", &accepted);
        }
        self.normal(&at.key("url"), &api.url, API_URL);
        let first = api.variable.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !first || !api.variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.text(&at.key("variable"), &api.variable, "not a variable's name", "^[A-Za-z_][A-Za-z0-9_]*$");
        }
    }

    fn upstream_proxy(&mut self, at: &PolicyPlace<'_>, proxy: &HttpUrl) {
        let problem = match proxy {
            HttpUrl { https: true, .. } => "a proxy that itself speaks TLS is not supported",
            HttpUrl { path, .. } if !path.is_empty() => "a proxy has no path",
            _ => return self.normal(at, proxy, PROXY_URL),
        };
        self.add(at, &format!("\"{proxy}\""), problem, PROXY_URL);
    }

    /// What was put together rather than read has to be what its text reads as.
    fn normal(&mut self, at: &PolicyPlace<'_>, url: &HttpUrl, accepted: &str) {
        let empty = matches!(&url.host, UrlHost::Name(name) if name.is_empty());
        if empty || url.to_text().parse::<HttpUrl>().as_ref() != Ok(url) {
            self.add(at, &format!("\"{url}\""), "not in its normal form", accepted);
        }
    }
}

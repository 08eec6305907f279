//! Options about the network: its mode, hosts, proxy and budgets. Rows only.

use cofferdam_policy::{AllowRule, Field, NetworkMode};

use crate::args::option::{BLANK, Heading, PolicyOption, Takes};
use crate::args::values;
use crate::output::text::quoted;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "network",
        takes: Takes::One("MODE"),
        help: "none (default), loopback, host or allow=HOST,…",
        more: "`allow=HOST[:PORTS],…` is the same as --network allowlist with an --allow for each; it counts once, so more \
               hosts stand in the one list or behind --allow.",
        heading: Heading::NetworkAndProcesses,
        leaves: &["network.mode"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.policy.network.mode = match text {
                "none" => NetworkMode::None,
                "loopback" => NetworkMode::Loopback,
                "host" => NetworkMode::Host,
                "allowlist" => NetworkMode::Allowlist,
                _ => {
                    let Some(list) = text.strip_prefix("allow=") else {
                        let known = "none, loopback, allowlist, host or allow=HOST[:PORTS],…";
                        // A word with a dot can only have been meant for a host, and one behind an `@` for a bundle of them.
                        let named = text.contains('.') || text.starts_with('@');
                        let host = named.then(|| format!("\nhint: --allow {}", quoted(text)));
                        return Err(format!("`{text}` is no network mode: {known}{}", host.unwrap_or_default()));
                    };
                    let entries = values::network_list(list);
                    for (at, entry) in entries.iter().enumerate() {
                        let corrected = |meant: &str| {
                            let mut entries: Vec<&str> = entries.iter().map(String::as_str).collect();
                            entries[at] = meant;
                            format!("--network allow={}", entries.join(","))
                        };
                        draft.policy.network.allow.extend(values::allow_rules(entry, corrected)?);
                    }
                    NetworkMode::Allowlist
                }
            };
            draft.network_named = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "allow",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host, *.SUFFIX, CIDR or @BUNDLE it may reach",
        more: "PORTS is a list such as `22`, `80,8000-8010`, or `*` for every port; without it 80 and 443. A bundle such as @pypi \
               stands for its hosts. Alone it means --network allowlist.",
        heading: Heading::NetworkAndProcesses,
        leaves: &["network.allow"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.default_to_allowlist();
            let rules = values::allow_rules(text, |meant| format!("--allow {meant}"));
            draft.policy.network.allow.extend(rules.map_err(|why| values::not_one_entry("allow", text, why))?);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "allow-private",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host it may reach also at a private address",
        more: "One name, which may lead to an address of a private network (RFC 1918, 100.64/10, fc00::/7, fec0::/10) as to a public one. It \
               never leads to this machine, link-local addresses or a metadata service. Otherwise the same as --allow.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.allow"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.default_to_allowlist();
            let rule = values::private_rule(text)?;
            draft.policy.network.allow.push(rule);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "allow-encrypted-hello",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host whose name the TLS greeting may hide",
        more: "Chromium's greetings do (Encrypted Client Hello). Then the address alone says where a connection goes: other hosts that a \
               server at that address serves cannot be distinguished from this one. Otherwise the same as --allow.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.allow"],
        requires: &[Field::Network],
        apply: |draft, text| {
            draft.default_to_allowlist();
            let rules = values::allow_rules(text, |meant| format!("--allow-encrypted-hello {meant}"));
            let rules = rules.map_err(|why| values::not_one_entry("allow-encrypted-hello", text, why))?;
            draft
                .policy
                .network
                .allow
                .extend(rules.into_iter().map(|rule| AllowRule { encrypted_hello: true, ..rule }));
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "deny-host",
        takes: Takes::Many("HOST[:PORTS]"),
        help: "A host, *.SUFFIX or CIDR that stays out of reach",
        more: "It wins over --allow, and holds for the addresses that names resolve to. Without PORTS: every port.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.deny"],
        requires: &[Field::Network],
        apply: |draft, text| {
            let entry = values::deny_entry(text).map_err(|why| values::not_one_entry("deny-host", text, why))?;
            draft.policy.network.deny.push(entry);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "api",
        takes: Takes::One("[VARIABLE=]URL"),
        help: "An API of the host's side that is passed through",
        more: "Inside it is at http://127.0.0.1:3129 and nowhere else, and VARIABLE (ISCL_API_URL) says so. Each request is \
               on record. Alone it means --network allowlist.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.api.url", "network.api.variable"],
        requires: &[Field::Network, Field::Api],
        apply: |draft, text| {
            let api = values::api(text)?;
            draft.default_to_allowlist();
            draft.policy.network.api = Some(api);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "upstream-proxy",
        takes: Takes::One("URL"),
        help: "Proxy through which allowed connections go out",
        more: "`http://[USER:PASSWORD@]HOST:PORT`. The proxy then resolves the names, so what they resolve to is not \
               checked: naming one accepts that (network.upstream_proxy becomes best effort). Default: $HTTPS_PROXY, \
               $https_proxy, $ALL_PROXY or $all_proxy, if it is an http:// URL; `none` goes out directly.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.upstream_proxy"],
        apply: |draft, text| {
            draft.direct = text == "none";
            draft.policy.network.upstream_proxy = None;
            if !draft.direct {
                draft.policy.network.upstream_proxy = Some(values::proxy(text)?);
                draft.policy.allow_partial(Field::UpstreamProxy);
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "network-limit",
        takes: Takes::Many("NAME=NUMBER"),
        help: "A budget of its connections, such as down_mb=100",
        more: "connections (256) and connections_per_host (64) open at once; up_mb (1024) and down_mb (10240) for the run; \
               host_up_mb and host_down_mb for each host; kib_per_second; names (512) that may be asked for.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &[
            "network.limits.connections",
            "network.limits.connections_per_host",
            "network.limits.up_mb",
            "network.limits.down_mb",
            "network.limits.host_up_mb",
            "network.limits.host_down_mb",
            "network.limits.kib_per_second",
            "network.limits.names",
        ],
        requires: &[Field::NetworkLimits],
        apply: |draft, text| {
            let (name, value) = values::network_limit(text)?;
            draft.policy.network.limits.set(name, value);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "methods",
        takes: Takes::One("METHOD[,METHOD…]"),
        help: "Methods its requests on plain HTTP may have",
        more: "`--methods GET,HEAD` is for reading; without it any method passes. What is encrypted is not looked \
               into. Needs --allow.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["network.methods"],
        requires: &[Field::Methods],
        apply: |draft, text| {
            draft.policy.network.methods = Some(text.split(',').map(str::to_owned).collect());
            Ok(())
        },
        ..BLANK
    },
];

//! Resolves names as the host does: /etc/hosts, then the name servers of /etc/resolv.conf. Its answers are not trusted:
//! the dialer checks each address. Knows no rules.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

use crate::decide::host_name::Name;
use crate::decide::refusal::{EgressRefusal, NetworkReason};

/// How often the files are checked for changes.
const FRESH: Duration = Duration::from_secs(2);
/// An answer is cached for its TTL, but no longer than this.
const MOST_TTL: Duration = Duration::from_secs(60);
/// Most names whose answers are cached, for all sandboxes.
const CACHED: u64 = 1024;
/// Most name servers, as in the C library.
const MOST_SERVERS: usize = 3;
/// Most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 16;

/// Resolves to the addresses of a name, or why there is none.
pub type Addresses = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, EgressRefusal>> + Send>>;

/// Resolves names for a gateway.
pub trait Resolve: Send + Sync {
    /// All addresses, in the order in which they are to be tried.
    fn addresses(&self, name: &Name) -> Addresses;
}

/// Resolves names as the host does.
#[derive(Default)]
pub struct SystemResolver {
    current: Mutex<Option<(Instant, Stamps, Arc<HostConfig>)>>,
}

/// Inode and modification time of the files, which are read again when this changes.
type Stamps = [Option<(u64, i64, i64)>; 2];

struct HostConfig {
    hosts: HashMap<String, Vec<IpAddr>>,
    resolver: Option<TokioResolver>,
}

const HOSTS: &str = "/etc/hosts";
const SERVERS: &str = "/etc/resolv.conf";

fn stamps() -> Stamps {
    [HOSTS, SERVERS].map(|path| Path::new(path).metadata().ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec())))
}

impl SystemResolver {
    fn files(&self) -> Arc<HostConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((looked, was, files)) = current.as_mut() {
            if now.saturating_duration_since(*looked) < FRESH {
                return Arc::clone(files);
            }
            *looked = now;
            if *was == stamps() {
                return Arc::clone(files);
            }
        }
        let stamps = stamps();
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let files = Arc::new(HostConfig { hosts: hosts(&text(HOSTS)), resolver: resolver(&text(SERVERS)) });
        *current = Some((now, stamps, Arc::clone(&files)));
        files
    }
}

impl Resolve for SystemResolver {
    fn addresses(&self, name: &Name) -> Addresses {
        let files = self.files();
        if let Some(addresses) = files.hosts.get(name.as_str()) {
            let addresses = addresses.clone();
            return Box::pin(async move { Ok(addresses) });
        }
        let name = format!("{}.", name.as_str());
        Box::pin(async move {
            let Some(resolver) = &files.resolver else { return Err(unresolved("the host has no name server")) };
            match resolver.lookup_ip(name).await {
                Ok(found) => {
                    let addresses: Vec<IpAddr> = found.iter().take(MOST_ADDRESSES).collect();
                    if addresses.is_empty() { Err(unresolved("no address")) } else { Ok(addresses) }
                }
                Err(error) if error.is_nx_domain() => Err(unresolved("there is no such name")),
                Err(error) if error.is_no_records_found() => Err(unresolved("no address")),
                Err(error) => Err(unresolved(&format!("the host's resolver: {error}"))),
            }
        })
    }
}

/// The refusal for a name without an address.
pub fn unresolved(why: &str) -> EgressRefusal {
    EgressRefusal::because(NetworkReason::NotResolved, why)
}

/// Parses `ADDRESS NAME…` lines; a name may occur in several.
fn hosts(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut all: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words {
            let addresses = all.entry(name.trim_end_matches('.').to_ascii_lowercase()).or_default();
            if !addresses.contains(&address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(address);
            }
        }
    }
    all
}

/// The name servers of a resolv.conf; without any, the one on this host, as in the C library. Search lists are ignored:
/// names in a policy are complete.
fn servers(text: &str) -> Vec<IpAddr> {
    let mut servers: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("nameserver"))
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
        .take(MOST_SERVERS)
        .collect();
    if servers.is_empty() {
        servers.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    servers
}

fn resolver(text: &str) -> Option<TokioResolver> {
    let servers = servers(text).into_iter().map(NameServerConfig::udp_and_tcp).collect();
    let config = ResolverConfig::from_name_servers(servers);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.timeout = Duration::from_secs(3);
    options.attempts = 2;
    options.cache_size = CACHED;
    options.positive_max_ttl = Some(MOST_TTL);
    options.negative_max_ttl = Some(Duration::from_secs(5));
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.use_hosts_file = ResolveHosts::Never;
    options.try_tcp_on_error = true;
    options.case_randomization = true;
    builder.build().inspect_err(|error| tracing::warn!(%error, "no resolver")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etc_hosts_is_parsed_as_by_the_c_library() {
        let all = hosts("127.0.0.1 localhost\n# 10.0.0.1 no\n10.0.0.2\tA.Example. b # c\nx y\nfe80::1%lo z\n::1 b\n");
        let addresses =
            |name: &str| all.get(name).map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(addresses("a.example"), Some(vec!["10.0.0.2".to_owned()]));
        assert_eq!(addresses("b"), Some(vec!["10.0.0.2".to_owned(), "::1".to_owned()]));
        assert_eq!((addresses("c"), addresses("no"), addresses("y"), addresses("z")), (None, None, None, None));
    }

    #[test]
    fn name_servers_are_at_most_three_and_at_least_one() {
        let of = |text| servers(text).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(
            of("nameserver 10.0.0.1\nnameserver\t::2\nnameservers 9.9.9.9\n#nameserver 1.1.1.1\n"),
            "10.0.0.1 ::2"
        );
        assert_eq!(
            of("nameserver 1.0.0.1\nnameserver 1.0.0.2\nnameserver 1.0.0.3\nnameserver 1.0.0.4"),
            "1.0.0.1 1.0.0.2 1.0.0.3"
        );
        assert_eq!(of("search example.com"), "127.0.0.1");
    }
}

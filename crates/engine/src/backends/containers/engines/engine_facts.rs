//! What an engine is and what it can hold here, from what it says of itself. Pure but for asking.

use serde_json::Value;

use super::client::{EngineClient, Trouble};
use super::info_cache;
use crate::backends::containers::{Arrival, Inodes, RuntimeFacts, usage};
use cofferdam_policy::text::escape;

/// Whose engine it is, by what it says: podman also answers at Docker's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// dockerd.
    Docker,
    /// Podman's service.
    Podman,
}

impl Flavour {
    /// For people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Flavour::Docker => "Docker",
            Flavour::Podman => "Podman",
        }
    }
}

/// What of an engine decides what it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct What {
    /// Whose.
    pub flavour: Flavour,
    /// Its version.
    pub version: String,
    /// The version of its Docker interface.
    pub api: (u32, u32),
    /// It runs as the caller.
    pub rootless: bool,
    /// How many ids its containers have; none when they have all of the host's.
    pub mapped: Option<u32>,
    /// Version of the cgroups.
    pub cgroups: u32,
    /// Why it cannot hold memory, CPU share and processes; none when it can.
    pub unlimited: Option<String>,
    /// What runs containers where nobody says otherwise.
    pub runtime: String,
    /// The engine's profile for system calls is on.
    pub seccomp: bool,
    /// Why the runtime makes no container at all here, as far as can be seen.
    pub useless: Option<String>,
    /// Hard limit of processes per user: what is not ours to raise cannot be the container's either.
    pub processes: u64,
}

/// What helps where crun makes no containers for Podman because cgroups are there in both versions.
pub(super) const HYBRID: &str = "have Podman use runc: apt-get install runc, and runtime = \"runc\" under [engine] in \
     /etc/containers/containers.conf (of one user: ~/.config/containers/containers.conf); or boot with \
     systemd.unified_cgroup_hierarchy=1 on the kernel command line";
/// Where version 2 is mounted beside version 1, and what it has taken from that.
const BESIDE: &str = "/sys/fs/cgroup/unified/cgroup.controllers";

/// The number of pids that every kernel has.
const LEAST_PIDS: u64 = 32768;

impl What {
    /// Asks an engine.
    pub(super) fn ask(client: &EngineClient) -> Result<What, Trouble> {
        let ping = client.ping()?;
        let info = if ping.podman { info_cache::info(client, &ping)? } else { client.json("/info".into())? };
        let own = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
        // Podman's service lowers its own to the number of pids that there can be.
        let processes = own.unwrap_or(LEAST_PIDS).min(LEAST_PIDS);
        let api = api(&ping.api);
        let mut what =
            if ping.podman { What::podman(api, &info, processes) } else { What::docker(api, &info, processes) };
        let beside = std::fs::read_to_string(BESIDE).unwrap_or_default();
        what.useless = what.refuses_hybrid(beside.trim());
        Ok(what)
    }

    /// From `/info`.
    pub(super) fn docker(api: (u32, u32), info: &Value, processes: u64) -> What {
        let options: Vec<&str> =
            info["SecurityOptions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let option = |name: &str| options.iter().find(|option| option.split(',').next() == Some(name));
        let rootless = option("name=rootless").is_some();
        let unlimited = if info["CgroupDriver"] == "none" {
            Some("it runs without cgroups: run it where systemd delegates them (cgroup version 2)".to_owned())
        } else {
            let lacking: Vec<&str> = [
                ("MemoryLimit", "memory"),
                ("SwapLimit", "swap (boot with swapaccount=1)"),
                ("CpuCfsQuota", "CPU share"),
                ("PidsLimit", "processes"),
            ]
            .into_iter()
            .filter(|(key, _)| info[*key] != true)
            .map(|(_, what)| what)
            .collect();
            (!lacking.is_empty()).then(|| format!("this kernel does not let it limit {}", lacking.join(", ")))
        };
        What {
            flavour: Flavour::Docker,
            version: text(&info["ServerVersion"]),
            api,
            rootless,
            // rootlesskit wants 65536 subordinate ids, and a remapped engine has as many.
            mapped: (rootless || option("name=userns").is_some()).then_some(65536),
            cgroups: number(&info["CgroupVersion"]),
            unlimited,
            runtime: text(&info["DefaultRuntime"]),
            seccomp: option("name=seccomp").is_some_and(|option| !option.contains("profile=unconfined")),
            useless: None,
            processes,
        }
    }

    /// From libpod's own `info`.
    pub(super) fn podman(api: (u32, u32), info: &Value, processes: u64) -> What {
        let host = &info["host"];
        let rootless = host["security"]["rootless"] == true;
        let cgroups = number(&Value::String(text(&host["cgroupVersion"]).trim_start_matches('v').to_owned()));
        let controllers: Vec<&str> =
            host["cgroupControllers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let lacking: Vec<&str> =
            ["memory", "cpu", "pids"].into_iter().filter(|name| !controllers.contains(name)).collect();
        let unlimited = if rootless && cgroups < 2 {
            Some("it is rootless, and cgroup version 1 cannot be delegated".to_owned())
        } else if !lacking.is_empty() {
            Some(format!("it has no cgroup controllers {}: systemd has to delegate them", lacking.join(", ")))
        } else {
            None
        };
        let ids = |which: &str| {
            let map = host["idMappings"][which].as_array();
            let size = |entry: &Value| entry["size"].as_u64().unwrap_or(0);
            map.map(|map| map.iter().map(size).sum::<u64>()).filter(|sum| *sum > 0)
        };
        let mapped = match (ids("uidmap"), ids("gidmap")) {
            (Some(users), Some(groups)) => Some(u32::try_from(users.min(groups)).unwrap_or(u32::MAX)),
            _ if rootless => Some(1),
            _ => None,
        };
        What {
            flavour: Flavour::Podman,
            version: text(&info["version"]["Version"]),
            api,
            rootless,
            mapped,
            cgroups,
            unlimited,
            runtime: text(&host["ociRuntime"]["name"]),
            seccomp: host["security"]["seccompEnabled"] == true,
            useless: None,
            processes,
        }
    }

    /// crun makes nothing for Podman where version 2 has some controllers, named here, and version 1 the others.
    fn refuses_hybrid(&self, beside: &str) -> Option<String> {
        let refuses = self.flavour == Flavour::Podman && self.runtime.contains("crun") && self.cgroups == 1;
        (refuses && !beside.is_empty())
            .then(|| format!("crun makes no containers here: cgroups are hybrid, and version 2 has {beside}: {HYBRID}"))
    }

    /// For whoever chooses.
    pub(super) fn about(&self) -> RuntimeFacts {
        let mut detail = format!(
            "{} {}{}, {}, cgroup version {}",
            self.flavour.name(),
            self.version,
            if self.rootless { ", rootless" } else { "" },
            self.runtime,
            self.cgroups
        );
        detail += if self.seccomp { ", its default seccomp profile" } else { ", without a seccomp profile of its own" };
        if self.flavour == Flavour::Podman && self.cgroups < 2 {
            detail += ", no cgroup namespace";
        }
        if let Some(why) = &self.unlimited {
            detail += "; no limits: ";
            detail += why;
        }
        let gvisor = self.runtime.contains("runsc");
        let inodes = match self.flavour {
            Flavour::Docker if !gvisor => Inodes::Counted,
            Flavour::Podman if !gvisor && !usage::charges_inodes() => Inodes::Unbounded,
            _ => Inodes::Charged,
        };
        RuntimeFacts {
            version: self.version.clone(),
            rootless: self.rootless,
            arrival: Arrival::Rendezvous,
            apart: false,
            compares: false,
            listener: !gvisor,
            limits: self.unlimited.is_none(),
            inodes,
            flags: self.flavour == Flavour::Podman,
            // What is not the engine's own word stands there whole.
            detail: self.useless.iter().fold(escape(detail.as_bytes()), |detail, why| format!("{detail}; {why}")),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A number, or one in a string.
fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn api(said: &str) -> (u32, u32) {
    let mut parts = said.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn docker(change: impl Fn(&mut Value)) -> What {
        let mut info = json!({
            "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"], "CgroupDriver": "systemd", "CgroupVersion": "2",
            "DefaultRuntime": "runc", "MemoryLimit": true, "SwapLimit": true, "CpuCfsQuota": true, "PidsLimit": true,
        });
        change(&mut info);
        What::docker(api("1.48"), &info, 100)
    }

    fn podman(change: impl Fn(&mut Value)) -> What {
        let mut info = json!({ "host": {
            "cgroupVersion": "v2", "cgroupControllers": ["cpu", "memory", "pids"], "ociRuntime": { "name": "crun" },
            "idMappings": { "uidmap": null, "gidmap": null }, "security": { "rootless": false, "seccompEnabled": true },
        } });
        change(&mut info);
        What::podman(api("1.41"), &info, 100)
    }

    #[test]
    fn limits_are_held_only_where_the_engine_says_so_for_each() {
        assert!(docker(|_| {}).about().limits && podman(|_| {}).about().limits, "the twins");
        for key in ["MemoryLimit", "SwapLimit", "CpuCfsQuota", "PidsLimit"] {
            let about = docker(|info| info[key] = json!(false)).about();
            assert!(!about.limits && about.detail.contains("no limits: "), "{key} {}", about.detail);
        }
        let about = docker(|info| info["CgroupDriver"] = json!("none")).about();
        assert!(!about.limits && about.detail.contains("without cgroups"), "{}", about.detail);
        let about = podman(|info| info["host"]["cgroupControllers"] = json!(["cpu", "memory"])).about();
        assert!(!about.limits && about.detail.contains("controllers pids"), "{}", about.detail);
        let about = podman(|info| {
            info["host"]["security"]["rootless"] = json!(true);
            info["host"]["cgroupVersion"] = json!("v1");
        })
        .about();
        assert!(!about.limits && about.rootless, "{}", about.detail);
    }

    #[test]
    fn crun_on_a_hybrid_cgroup_host_is_refused_with_a_hint() {
        let old = |runtime: &str| {
            podman(|info| {
                info["host"]["cgroupVersion"] = json!("v1");
                info["host"]["ociRuntime"]["name"] = json!(runtime);
            })
        };
        let mut what = old("crun");
        what.useless = what.refuses_hybrid("hugetlb");
        let detail = what.about().detail;
        assert!(detail.contains("version 2 has hugetlb") && detail.ends_with("kernel command line"), "{detail}");
        assert_eq!(what.refuses_hybrid(""), None, "there is nothing of version 2");
        assert_eq!(old("runc").refuses_hybrid("hugetlb"), None);
        assert_eq!(podman(|_| {}).refuses_hybrid("hugetlb"), None, "all of it is version 2");
    }

    #[test]
    fn ids_are_all_of_the_hosts_or_those_that_are_mapped() {
        assert_eq!(docker(|_| {}).mapped, None);
        assert_eq!(docker(|info| info["SecurityOptions"] = json!(["name=rootless"])).mapped, Some(65536));
        assert_eq!(docker(|info| info["SecurityOptions"] = json!(["name=userns"])).mapped, Some(65536));
        assert_eq!(podman(|_| {}).mapped, None);
        let rootless = |uids: Value, gids: Value| {
            podman(|info| {
                info["host"]["security"]["rootless"] = json!(true);
                info["host"]["idMappings"] = json!({ "uidmap": uids, "gidmap": gids });
            })
            .mapped
        };
        let one = json!([{ "container_id": 0, "host_id": 1000, "size": 1 }]);
        let many = json!([{ "size": 1 }, { "size": 65536 }]);
        assert_eq!(rootless(one.clone(), one.clone()), Some(1));
        assert_eq!(rootless(many.clone(), many.clone()), Some(65537));
        assert_eq!(rootless(many, one), Some(1), "both are needed");
        assert_eq!(rootless(Value::Null, Value::Null), Some(1), "untold is as little as can be");
    }

    #[test]
    fn weaker_settings_of_an_engine_are_reported() {
        let about = docker(|info| info["SecurityOptions"] = json!(["name=seccomp,profile=unconfined"])).about();
        assert!(about.detail.contains("without a seccomp profile"), "{}", about.detail);
        assert!(docker(|_| {}).about().detail.contains("default seccomp profile"), "the twin");
        assert!(!docker(|info| info["DefaultRuntime"] = json!("runsc")).about().listener);
        assert!(docker(|_| {}).about().listener, "the twin");
        let old = podman(|info| info["host"]["cgroupVersion"] = json!("v1")).about();
        assert!(old.detail.contains("no cgroup namespace"), "{}", old.detail);
        assert_eq!(docker(|_| {}).api, (1, 48));
    }
}

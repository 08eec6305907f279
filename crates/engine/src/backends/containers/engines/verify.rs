//! Whether the container that an engine made is the one that it was asked for. Pure: compares two descriptions.
//!
//! An engine may leave out what it does not know, and add what its configuration says. Nothing has run in the container yet;
//! a difference that matters means that it is removed, and the run refused.

use std::collections::{BTreeMap, BTreeSet};

use bollard::models::{ContainerCreateBody, HostConfig, MountType};
use serde_json::Value;

use super::engine_facts::{Flavour, What};
use crate::backends::containers::spec::MASKED;

/// What differs between what was asked for and what `inspect` tells (Docker's form, or libpod's of Podman), in words.
pub(super) fn differences(asked: &ContainerCreateBody, inspected: &Value, what: &What) -> Vec<String> {
    let empty = HostConfig::default();
    let mut compared = Compared {
        host: asked.host_config.as_ref().unwrap_or(&empty),
        asked,
        inspected,
        podman: what.flavour == Flavour::Podman,
        rootless: what.rootless,
        cgroups: what.cgroups,
        runtime: &what.runtime,
        differences: Vec::new(),
    };
    compared.process();
    compared.powers();
    compared.namespaces();
    compared.mounts();
    compared.masks();
    compared.limits();
    compared.rest();
    compared.annotations();
    compared.differences
}

/// How a difference in annotations begins.
pub(super) const ANNOTATION: &str = "there is an annotation ";

/// Namespaces of annotations by which nothing is made otherwise: they describe an image, or are Podman's record of settings
/// that are compared themselves.
const DESCRIPTIONS: [&str; 5] = [
    "org.opencontainers.image.",
    "org.label-schema.",
    "com.docker.official-images.",
    "dev.chainguard.",
    "io.podman.annotations.",
];
/// What else Podman itself writes there.
const PODMANS: [&str; 3] = ["io.container.manager", "io.kubernetes.cri-o.Created", "io.kubernetes.cri-o.TTY"];

struct Compared<'a> {
    asked: &'a ContainerCreateBody,
    host: &'a HostConfig,
    inspected: &'a Value,
    podman: bool,
    rootless: bool,
    cgroups: u32,
    runtime: &'a str,
    differences: Vec<String>,
}

impl Compared<'_> {
    fn say(&mut self, holds: bool, what: &str, found: impl std::fmt::Display) {
        if !holds {
            self.differences.push(format!("{what} is {found}"));
        }
    }

    fn inspected(&self, pointer: &str) -> &Value {
        self.inspected.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn process(&mut self) {
        let argv: Vec<String> =
            std::iter::once(self.inspected("/Path")).chain(list(self.inspected("/Args"))).map(text).collect();
        self.say(Some(&argv) == self.asked.entrypoint.as_ref(), "the program", format!("{argv:?}"));
        let user = text(self.inspected("/Config/User"));
        self.say(Some(&user) == self.asked.user.as_ref(), "the user", &user);
        let image = text(self.inspected("/Image"));
        let same = self.asked.image.as_deref().is_some_and(|asked| bare(asked) == bare(&image));
        self.say(same, "the image", &image);
        for flag in ["/Config/Tty", "/Config/OpenStdin"] {
            let found = self.inspected(flag).clone();
            self.say(found == false, flag, found);
        }
        for (name, value) in self.asked.labels.iter().flatten() {
            let found = self.inspected("/Config/Labels").get(name).map(text).unwrap_or_default();
            self.say(found == *value, &format!("the label {name}"), &found);
        }
        let hostname = text(self.inspected("/Config/Hostname"));
        self.say(Some(&hostname) == self.asked.hostname.as_ref(), "the host name", &hostname);
    }

    fn powers(&mut self) {
        let asked: BTreeSet<String> = self.host.cap_add.iter().flatten().map(|cap| capability(cap)).collect();
        let set = |value: &Value| -> BTreeSet<String> { list(value).map(|cap| capability(&text(cap))).collect() };
        if self.podman {
            // It tells what the process gets in the end.
            for which in ["/EffectiveCaps", "/BoundingCaps"] {
                let held = set(self.inspected(which));
                self.say(held == asked, which, format!("{held:?}"));
            }
        } else {
            let (added, dropped) =
                (set(self.inspected("/HostConfig/CapAdd")), set(self.inspected("/HostConfig/CapDrop")));
            self.say(added == asked, "CapAdd", format!("{added:?}"));
            self.say(dropped.contains("ALL"), "CapDrop", format!("{dropped:?}"));
        }
        for (flag, asked) in [("/HostConfig/Privileged", false), ("/HostConfig/ReadonlyRootfs", true)] {
            let found = self.inspected(flag).clone();
            self.say(found == asked, flag, found);
        }
        let options: Vec<String> = list(self.inspected("/HostConfig/SecurityOpt")).map(text).collect();
        let fixed = options.iter().any(|option| {
            matches!(option.as_str(), "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true")
        });
        self.say(fixed, "no-new-privileges", "not set");
        for option in &options {
            let loose = ["unconfined", "disable", "unmask", "no-new-privileges:false", "no-new-privileges=false"];
            self.say(!loose.iter().any(|word| option.contains(word)), "a security option", option);
        }
        for list_ in ["Devices", "DeviceRequests", "DeviceCgroupRules", "GroupAdd", "VolumesFrom"] {
            let found = self.inspected(&format!("/HostConfig/{list_}")).clone();
            self.say(is_empty(&found), list_, found);
        }
    }

    fn namespaces(&mut self) {
        let network = text(self.inspected("/HostConfig/NetworkMode"));
        self.say(Some(&network) == self.host.network_mode.as_ref(), "the network", &network);
        for which in ["PidMode", "UTSMode", "UsernsMode"] {
            let found = text(self.inspected(&format!("/HostConfig/{which}")));
            let own = matches!(found.as_str(), "" | "private") || (which == "UsernsMode" && found != "host");
            self.say(own, which, &found);
        }
        let ipc = text(self.inspected("/HostConfig/IpcMode"));
        // Podman's own word; whoever may ask it to share this one may ask it for anything.
        self.say(ipc == "private" || (self.podman && ipc == "shareable"), "IpcMode", &ipc);
        let cgroup =
            text(self.inspected(if self.podman { "/HostConfig/CgroupMode" } else { "/HostConfig/CgroupnsMode" }));
        // With cgroup version 1 Podman has none to give; `about` says so.
        self.say(cgroup == "private" || (self.podman && self.cgroups < 2), "the cgroup namespace", &cgroup);
        let ports = self.inspected("/HostConfig/PortBindings").clone();
        self.say(is_empty(&ports), "PortBindings", ports);
        let published = self.inspected("/HostConfig/PublishAllPorts").clone();
        self.say(published != true, "PublishAllPorts", published);
    }

    fn mounts(&mut self) {
        let mut asked: BTreeMap<String, (String, bool)> = BTreeMap::new();
        let mut covers: BTreeSet<String> = BTreeSet::new();
        for mount in self.host.mounts.iter().flatten() {
            let (Some(target), read_only) = (mount.target.clone(), mount.read_only == Some(true)) else { continue };
            if mount.typ == Some(MountType::TMPFS) {
                covers.insert(target);
            } else {
                asked.insert(target, (mount.source.clone().unwrap_or_default(), !read_only));
            }
        }
        for bind in self.host.binds.iter().flatten() {
            let mut parts = bind.split(':');
            if let (Some(source), Some(target), Some(options)) = (parts.next(), parts.next(), parts.next()) {
                asked.insert(target.to_owned(), (source.to_owned(), !options.split(',').any(|option| option == "ro")));
            }
        }
        let inspected: Vec<Value> = list(self.inspected("/Mounts")).cloned().collect();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for mount in &inspected {
            let (kind, target) = (text(&mount["Type"]), text(&mount["Destination"]));
            if kind == "tmpfs" && covers.contains(&target) {
                continue; // how large it is stands in HostConfig.Mounts, below
            }
            match asked.get(&target) {
                Some((source, writable)) if kind == "bind" => {
                    let found = text(&mount["Source"]);
                    self.say(found == *source, &format!("what is bound at {target}"), &found);
                    let found = mount["RW"].clone();
                    self.say(found == *writable, &format!("whether {target} can be written"), found);
                    seen.insert(target);
                }
                _ => self.differences.push(format!("there is a {kind} at {target} that was not asked for")),
            }
        }
        for target in asked.keys().filter(|target| !seen.contains(*target)) {
            self.differences.push(format!("nothing is bound at {target}"));
        }
        let mounts = list(self.inspected("/HostConfig/Mounts")).cloned().collect::<Vec<_>>();
        for target in covers {
            let same = mounts.iter().any(|mount| {
                let asked = self.host.mounts.iter().flatten().find(|asked| asked.target.as_ref() == Some(&target));
                let options = asked.and_then(|asked| asked.tmpfs_options.as_ref());
                mount["Target"] == target.as_str()
                    && mount["Type"] == "tmpfs"
                    && mount["ReadOnly"].as_bool().unwrap_or(false) == asked.is_some_and(|a| a.read_only == Some(true))
                    && mount["TmpfsOptions"]["SizeBytes"].as_i64() == options.and_then(|options| options.size_bytes)
            });
            self.say(same, &format!("the file system in memory at {target}"), "not what was asked for");
        }
        self.memory_file_systems();
    }

    fn memory_file_systems(&mut self) {
        let options = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
        let asked: BTreeMap<&String, BTreeSet<String>> =
            self.host.tmpfs.iter().flatten().map(|(target, text)| (target, options(text))).collect();
        let inspected = self.inspected("/HostConfig/Tmpfs").as_object().cloned().unwrap_or_default();
        for (target, asked) in &asked {
            let found = options(&inspected.get(*target).map(text).unwrap_or_default());
            let mut lacking = asked.difference(&found).filter(|option| *option != "notmpcopyup" && *option != "exec");
            if let Some(option) = lacking.next() {
                self.differences.push(format!("the file system in memory at {target} is without {option}"));
            }
            let copied = found.contains("tmpcopyup");
            self.say(!copied, &format!("the file system in memory at {target}"), "a copy of the image's");
        }
        for target in inspected.keys().filter(|target| !asked.contains_key(target)) {
            self.differences.push(format!("there is a file system in memory at {target} that was not asked for"));
        }
    }

    fn masks(&mut self) {
        let inspected = self.inspected("/HostConfig/MaskedPaths");
        if self.podman {
            // It tells those that were added, as options, and its own list when somebody takes from it.
            let wanted: Vec<&String> =
                self.host.security_opt.iter().flatten().filter(|option| option.starts_with("mask=")).collect();
            let kept: Vec<String> = list(self.inspected("/HostConfig/SecurityOpt")).map(text).collect();
            if !kept.is_empty() && kept.iter().any(|option| option.starts_with("mask=")) {
                for option in wanted {
                    let kept = kept.contains(option);
                    self.say(kept, "the list of hidden paths", "not what was asked for");
                }
            }
            return;
        }
        let inspected: BTreeSet<String> = list(inspected).map(text).collect();
        // What every version of Docker hides is there at least, and all that was asked for.
        let least = MASKED.iter().filter(|path| !NEW.contains(path)).map(|path| (*path).to_owned());
        for path in least.chain(self.host.masked_paths.iter().flatten().cloned()) {
            self.say(inspected.contains(&path), &path, "not hidden");
        }
        let fixed: BTreeSet<String> = list(self.inspected("/HostConfig/ReadonlyPaths")).map(text).collect();
        for path in ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"] {
            self.say(fixed.contains(path), path, "not read-only");
        }
    }

    fn limits(&mut self) {
        for (pointer, asked) in [
            ("Memory", self.host.memory),
            ("MemorySwap", self.host.memory_swap),
            ("PidsLimit", self.host.pids_limit),
            ("NanoCpus", self.host.nano_cpus),
        ] {
            let Some(asked) = asked else { continue };
            let found = self.inspected(&format!("/HostConfig/{pointer}")).clone();
            let share = || {
                let part = |name: &str| self.inspected(&format!("/HostConfig/{name}")).as_i64().unwrap_or(0);
                let (quota, period) = (part("CpuQuota"), part("CpuPeriod"));
                pointer == "NanoCpus" && quota > 0 && period > 0 && quota <= asked / 1000 * period / 1_000_000 + 1
            };
            let same = found.as_i64() == Some(asked) || share();
            self.say(same, &format!("the limit {pointer}"), format!("{found} instead of {asked}"));
        }
        let inspected: Vec<Value> = list(self.inspected("/HostConfig/Ulimits")).cloned().collect();
        // Podman without root gives its own limits on; init lowers them, as it does all others, before the program starts.
        let given = !(self.podman && self.rootless && inspected.is_empty());
        for limit in self.host.ulimits.iter().flatten().filter(|_| given) {
            let name = limit.name.clone().unwrap_or_default();
            let found = inspected
                .iter()
                .find(|inspected| text(&inspected["Name"]).to_lowercase().trim_start_matches("rlimit_") == name);
            let same = found.is_some_and(|found| found["Hard"].as_i64() == limit.hard);
            self.say(same, &format!("the ulimit {name}"), "not what was asked for");
        }
        let spared = self.inspected("/HostConfig/OomKillDisable").clone();
        self.say(spared != true, "OomKillDisable", spared);
    }

    /// Podman hands an image's annotations on to the runtime, which obeys some: crun's keep the groups of its caller, open files
    /// of the host and mount cgroups, runc's set properties of a unit, and hooks of the host are chosen by them.
    fn annotations(&mut self) {
        let inspected = self.inspected("/Config/Annotations").as_object().cloned().unwrap_or_default();
        for name in inspected.keys() {
            let harmless =
                DESCRIPTIONS.iter().any(|begins| name.starts_with(begins)) || PODMANS.contains(&name.as_str());
            if !harmless {
                self.differences.push(format!("{ANNOTATION}{name}, which a runtime or a hook may obey"));
            }
        }
    }

    fn rest(&mut self) {
        let log = text(self.inspected("/HostConfig/LogConfig/Type"));
        self.say(log == "none", "the log", &log);
        let restart = text(self.inspected("/HostConfig/RestartPolicy/Name"));
        self.say(matches!(restart.as_str(), "" | "no"), "the restart policy", &restart);
        if self.podman {
            // What init can do depends on it. Podman 3 does not tell.
            let runtime = text(self.inspected("/OCIRuntime"));
            self.say(runtime.is_empty() || runtime == self.runtime, "the runtime", &runtime);
        }
        for flag in ["AutoRemove", "Init"] {
            let found = self.inspected(&format!("/HostConfig/{flag}")).clone();
            self.say(found != true, flag, found);
        }
    }
}

/// What only newer versions hide.
const NEW: [&str; 3] = ["/proc/interrupts", "/sys/devices/virtual/powercap", "/sys/dev/block"];

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn bare(image: &str) -> &str {
    image.strip_prefix("sha256:").unwrap_or(image)
}

fn capability(name: &str) -> String {
    let name = name.to_uppercase();
    name.strip_prefix("CAP_").unwrap_or(&name).to_owned()
}

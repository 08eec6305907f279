//! The owner of a run: a process, identified so that no later one is taken for it, and whether it is still alive.
//!
//! A process id alone is reused, and differs between PID namespaces; a start time repeats from boot to boot. All four
//! together identify one process.

use std::sync::OnceLock;

use serde_json::{Map, Value};

/// A process that records runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingProcess {
    /// Its number, in its PID namespace.
    pub pid: u32,
    /// When it started, clock ticks since the boot; 0 where that is not known.
    pub started: u64,
    /// That namespace: its inode; 0 where that is not known.
    pub namespace: u32,
    /// The boot, by the kernel's own random id; empty where that is not known.
    pub boot: String,
}

/// What is known of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Life {
    /// It is there.
    Running,
    /// It is not.
    Gone,
    /// It was of another boot: gone, where it was on this machine.
    OtherBoot,
    /// It is in another PID namespace, or the record does not say enough.
    Unknown,
}

impl Life {
    /// As data has it.
    pub fn name(self) -> &'static str {
        match self {
            Life::Running => "running",
            Life::Gone => "gone",
            Life::OtherBoot => "other_boot",
            Life::Unknown => "unknown",
        }
    }
}

impl RecordingProcess {
    /// This process.
    pub fn me() -> RecordingProcess {
        let pid = std::process::id();
        RecordingProcess { pid, started: started(pid).unwrap_or(0), namespace: namespace(), boot: boot().to_owned() }
    }

    /// Parses the owner in a record.
    pub fn data(&self) -> Value {
        serde_json::json!({ "pid": self.pid, "started": self.started, "pidNamespace": self.namespace, "boot": self.boot })
    }

    /// Reads that.
    pub fn of(data: &Map<String, Value>) -> Option<RecordingProcess> {
        let owner = data.get("owner")?;
        let number = |key: &str| owner.get(key).and_then(Value::as_u64);
        Some(RecordingProcess {
            pid: number("pid")?.try_into().ok()?,
            started: number("started")?,
            namespace: number("pidNamespace")?.try_into().ok()?,
            boot: owner.get("boot")?.as_str()?.to_owned(),
        })
    }

    /// Whether it is there.
    pub fn life(&self) -> Life {
        if self.boot.is_empty() || self.started == 0 || boot().is_empty() {
            return Life::Unknown;
        }
        if self.boot != boot() {
            return Life::OtherBoot;
        }
        if self.namespace == 0 || self.namespace != namespace() {
            return Life::Unknown;
        }
        match look(self.pid) {
            ProcessSighting::Started(at) if at == self.started => Life::Running,
            ProcessSighting::Started(_) | ProcessSighting::Ended => Life::Gone,
            ProcessSighting::Hidden => Life::Unknown,
        }
    }
}

/// What /proc says about a process.
enum ProcessSighting {
    /// It runs, since so many clock ticks after the boot.
    Started(u64),
    /// Nothing of it runs.
    Ended,
    /// It is there, and not for us to look at.
    Hidden,
}

/// This PID namespace.
pub(crate) fn namespace() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino() as u32)
}

/// When a process started, clock ticks since boot; none where it has ended.
pub(crate) fn started(pid: u32) -> Option<u64> {
    match look(pid) {
        ProcessSighting::Started(at) => Some(at),
        ProcessSighting::Ended | ProcessSighting::Hidden => None,
    }
}

fn look(pid: u32) -> ProcessSighting {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        let id = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let is_there = id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH));
        return if is_there { ProcessSighting::Hidden } else { ProcessSighting::Ended };
    };
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    // What has ended and was not waited for is there by name alone, unless only its first thread ended.
    let has_ended = matches!(fields.first(), Some(&("Z" | "X")));
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    match fields.get(19).and_then(|at| at.parse().ok()) {
        Some(at) if !has_ended || threads() > 1 => ProcessSighting::Started(at),
        Some(_) => ProcessSighting::Ended,
        None => ProcessSighting::Hidden,
    }
}

fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        read.map_or_else(|_| String::new(), |text| text.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(owner: &RecordingProcess) -> Option<RecordingProcess> {
        RecordingProcess::of(&Map::from_iter([("owner".to_owned(), owner.data())]))
    }

    #[test]
    fn a_process_is_there_until_it_ends_and_no_other_passes_for_it() {
        let me = RecordingProcess::me();
        assert_eq!((of(&me), me.life()), (Some(me.clone()), Life::Running));
        assert_eq!(
            RecordingProcess { started: me.started + 1, ..me.clone() }.life(),
            Life::Gone,
            "its number was given again"
        );
        assert_eq!(RecordingProcess { boot: "another".into(), ..me.clone() }.life(), Life::OtherBoot);
        for unknown in [
            RecordingProcess { namespace: me.namespace ^ 1, ..me.clone() },
            RecordingProcess { namespace: 0, ..me.clone() },
            RecordingProcess { started: 0, ..me.clone() },
            RecordingProcess { boot: String::new(), ..me.clone() },
        ] {
            assert_eq!(unknown.life(), Life::Unknown, "{unknown:?}");
        }
        let mut child = std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let theirs = RecordingProcess { pid: child.id(), started: started(child.id()).unwrap(), ..me };
        assert_eq!(theirs.life(), Life::Running);
        child.kill().unwrap();
        // Ended, and not yet waited for: nothing of it runs.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while theirs.life() == Life::Running && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(theirs.life(), Life::Gone);
        child.wait().unwrap();
        assert_eq!(theirs.life(), Life::Gone);
    }

    #[test]
    fn what_a_record_does_not_say_is_not_made_up() {
        for data in [
            serde_json::json!({}),
            serde_json::json!({ "owner": 5 }),
            serde_json::json!({ "owner": { "pid": -1, "started": 1, "pidNamespace": 1, "boot": "x" } }),
            serde_json::json!({ "owner": { "pid": 1, "started": 1, "pidNamespace": 1u64 << 40, "boot": "x" } }),
            serde_json::json!({ "owner": { "pid": 1, "started": 1, "pidNamespace": 1 } }),
        ] {
            assert_eq!(RecordingProcess::of(data.as_object().unwrap()), None, "{data}");
        }
    }
}

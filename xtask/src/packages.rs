//! The Debian packages that tests and measurements need: which are missing, and installing them.
//!
//! Only what is missing is installed, only as root, and what is installed is said first. Nothing is ever removed,
//! no service is started by an installation, and a program that the machine has from elsewhere counts as there.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::shell::{run, step, uid, which};

/// One thing that must be on the machine.
pub(crate) struct Need {
    /// A program on the PATH, or an absolute path of a file.
    pub what: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
    /// Why it is needed.
    pub why: &'static str,
}

/// What `cargo xtask test` needs.
pub(crate) const TEST: &[Need] = &[
    Need { what: "gcc", package: "gcc", why: "compiles attacks and a program inside the jail" },
    Need { what: "/usr/include/stdio.h", package: "libc6-dev", why: "headers for gcc" },
    Need { what: "make", package: "make", why: "a first try of a user" },
    Need { what: "setpriv", package: "util-linux", why: "runs tests as an unprivileged user" },
    Need { what: "unshare", package: "util-linux", why: "lets that user reach the built tests" },
    Need { what: "python3", package: "python3", why: "`eval python`, and a program inside the jail" },
    Need { what: "/usr/bin/python3", package: "python3-minimal", why: "the system's own Python" },
    Need {
        what: "/usr/share/python-wheels",
        package: "python3-venv",
        why: "environments for Nickel and for the wheel",
    },
    Need { what: "bwrap", package: "bubblewrap", why: "a backend" },
    Need { what: "node", package: "nodejs", why: "`eval node`" },
    Need { what: "npm", package: "npm", why: "real work behind the walls of a command" },
    Need { what: "git", package: "git", why: "a program inside the jail" },
    Need { what: "hg", package: "mercurial", why: "repositories that a run leaves" },
    Need { what: "svnadmin", package: "subversion", why: "repositories that a run leaves" },
    Need { what: "sqlite3", package: "sqlite3", why: "a program inside the jail" },
    Need { what: "tar", package: "tar", why: "a program inside the jail" },
    Need { what: "script", package: "bsdutils", why: "a terminal for programs inside the jail" },
    Need { what: "javac", package: "default-jdk-headless", why: "a program inside the jail" },
    Need { what: "java", package: "default-jdk-headless", why: "a client of the egress gateway" },
    Need { what: "ip", package: "iproute2", why: "makes hosts in network namespaces" },
    Need { what: "openssl", package: "openssl", why: "certificates of those hosts" },
    Need { what: "ssh-keygen", package: "openssh-client", why: "keys of those hosts, and a client" },
    Need { what: "/usr/sbin/dropbear", package: "dropbear-bin", why: "the SSH server among those hosts" },
    Need { what: "curl", package: "curl", why: "a client of the egress gateway" },
    Need { what: "busybox", package: "busybox-static", why: "a client of the egress gateway" },
    Need {
        what: "/usr/lib/python3/dist-packages/requests",
        package: "python3-requests",
        why: "a client of the egress gateway",
    },
    Need { what: "/usr/lib/python3/dist-packages/pip", package: "python3-pip", why: "a client of the egress gateway" },
    Need { what: "nix", package: "nix-bin", why: "builds environments, in a store of the tests' own" },
    Need { what: "strace", package: "strace", why: "attacks by tracing" },
    Need { what: "/usr/sbin/dockerd", package: "docker.io", why: "an engine, started by the tests themselves" },
    Need { what: "podman", package: "podman", why: "an engine, started by the tests themselves" },
    Need { what: "crun", package: "crun", why: "an OCI runtime" },
    Need { what: "runc", package: "runc", why: "an OCI runtime" },
    Need { what: "runsc", package: "runsc", why: "an OCI runtime" },
    Need { what: "fuse-overlayfs", package: "fuse-overlayfs", why: "storage of an engine without root" },
    Need { what: "slirp4netns", package: "slirp4netns", why: "an engine without root asks for it" },
    Need { what: "newuidmap", package: "uidmap", why: "an engine without root, with ids of its own" },
];

/// What the guests need besides.
pub(crate) const GUESTS: &[Need] = &[
    Need { what: "qemu-system-x86_64", package: "qemu-system-x86", why: "boots other kernels" },
    Need { what: "busybox", package: "busybox-static", why: "the guests' programs" },
    Need { what: "/lib/systemd/systemd", package: "systemd", why: "first process of a guest" },
    Need { what: "/usr/bin/dbus-daemon", package: "dbus-daemon", why: "the bus of that guest" },
    Need {
        what: "/usr/lib/systemd/user/dbus.socket",
        package: "dbus-user-session",
        why: "the bus of that guest's user",
    },
];

/// What `cargo xtask bench` needs; peers that Debian lacks are measured where they are found.
pub(crate) const BENCH: &[Need] = &[
    Need { what: "gcc", package: "gcc", why: "compiles the measured programs" },
    Need { what: "/usr/include/stdio.h", package: "libc6-dev", why: "headers for gcc" },
    Need { what: "bwrap", package: "bubblewrap", why: "the peer that ratios refer to" },
    Need { what: "firejail", package: "firejail", why: "a peer" },
    Need { what: "git", package: "git", why: "work inside" },
    Need { what: "strace", package: "strace", why: "counts fsyncs" },
];

/// Installs what is missing. Not as root, or where there is no apt-get, it says what is missing and how to get it;
/// that is an error only under `COFFERDAM_MUST_WORK=1`, for tests skip what they lack.
pub(crate) fn ensure(needs: &[Need]) -> Result {
    let missing: Vec<&Need> = needs.iter().filter(|need| !is_there(need.what)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step("Debian packages that are missing");
    for need in &missing {
        eprintln!("  {:<22} {}", need.package, need.why);
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if uid() != Some(0) || which("apt-get").is_none() {
        let hint = format!("hint: sudo apt-get install {}", packages.join(" "));
        if must_work() {
            return Err(format!("cannot install packages without root and apt-get\n{hint}"));
        }
        eprintln!("not root, or no apt-get: tests that need them will say that they are skipped\n{hint}");
        return Ok(());
    }
    // Daemons among them would start with the machine's own data: tests start theirs, with directories of their own.
    let quiet = NoServices::declare(Path::new(POLICY))?;
    run(apt_get().args(["update", "-qq"]))?;
    run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages))?;
    quiet.withdraw()
}

/// Where Debian's packages ask whether they may start their services.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The answer "no" to that question, for as long as this lives. An answer that the machine has already is left alone.
struct NoServices(Option<PathBuf>);

impl NoServices {
    fn declare(file: &Path) -> std::result::Result<NoServices, String> {
        match OpenOptions::new().write(true).create_new(true).mode(0o755).open(file) {
            Ok(mut policy) => {
                let ours = NoServices(Some(file.to_owned()));
                policy
                    .write_all(b"#!/bin/sh\n# Of `cargo xtask test`, while it installs packages: no service starts.\nexit 101\n")
                    .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
                Ok(ours)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(NoServices(None)),
            Err(error) => Err(format!("cannot make {}: {error}", file.display())),
        }
    }

    fn withdraw(mut self) -> Result {
        match self.0.take() {
            Some(file) => fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display())),
            None => Ok(()),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(file) = &self.0
            && let Err(error) = fs::remove_file(file)
        {
            eprintln!("cannot remove {}: {error}", file.display());
        }
    }
}

/// Whether a skip is a failure.
pub(crate) fn must_work() -> bool {
    std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1")
}

fn is_there(what: &str) -> bool {
    if what.starts_with('/') { Path::new(what).exists() } else { which(what).is_some() }
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_forbidden_while_packages_are_installed_and_no_longer() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("policy-rc.d");
        let quiet = NoServices::declare(&file).expect("declared");
        let answer = Command::new("sh").arg(&file).args(["docker", "start"]).status().expect("the policy runs");
        assert_eq!(answer.code(), Some(101));
        quiet.withdraw().expect("withdrawn");
        assert!(!file.exists());
        drop(NoServices::declare(&file).expect("declared again"));
        assert!(!file.exists(), "an installation that fails leaves it behind");
    }

    #[test]
    fn an_answer_that_the_machine_has_stays_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("policy-rc.d");
        fs::write(&file, "its own").expect("written");
        NoServices::declare(&file).expect("declared").withdraw().expect("withdrawn");
        assert_eq!(fs::read_to_string(&file).expect("still there"), "its own");
    }
}

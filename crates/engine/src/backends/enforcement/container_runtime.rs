//! What a container runtime provides on this host, as far as enforcement and the run depend on it.

use serde::Serialize;

use crate::outcome::AppliedField;

/// Threads that a kernel in user space has for itself on this one; about a hundred before the program does anything.
pub(crate) const KERNEL_THREADS: u64 = 256;

/// What a runtime is, here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RuntimeFacts {
    /// Its version.
    pub version: String,
    /// It runs as the caller, in user namespaces of the caller's.
    pub rootless: bool,
    /// How init comes by its descriptors.
    pub arrival: Arrival,
    /// Whether init can be another user than the program, with the capabilities that this takes: for kernels that keep
    /// processes apart by nothing else.
    pub apart: bool,
    /// Whether it says itself that what is mounted is what was looked at (`StartedContainer::compare`), because its kernel numbers files in
    /// its own way and init cannot.
    pub compares: bool,
    /// Whether system calls can be reported to init: gVisor has no such thing.
    pub listener: bool,
    /// Whether it holds memory, CPU share and processes itself. Otherwise the run's own cgroup does.
    pub limits: bool,
    /// What bounds how many files a file system in memory holds, which has a size in any case.
    pub inodes: Inodes,
    /// Whether its binds are nosuid and nodev. Otherwise no new privileges and its list of devices stand for that.
    pub flags: bool,
    /// What stands behind the boundary, for reasons: such as "namespaces, the default seccomp profile".
    pub detail: String,
}

/// What bounds how many files without contents there can be in a container's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Inodes {
    /// A number that the file system is mounted with.
    Counted,
    /// The memory limit, where there is one: what they take is charged to the container.
    Charged,
    /// The same, and in a `/dev` without a size the program can make files as well.
    ChargedInDev,
    /// Nothing.
    Unbounded,
}

/// How init comes by its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arrival {
    /// They are open when it starts.
    Inherited,
    /// It connects to a socket in a directory that is mounted into the container.
    #[serde(rename = "door")]
    Rendezvous,
}

/// What is enforced of `limits.processes` where the cgroup counts the container's kernel with the program.
pub(crate) fn shared_with_kernel() -> AppliedField {
    AppliedField::partial(format!(
        "the cgroup counts the threads of the container's kernel as well, and has room for {KERNEL_THREADS}"
    ))
}

//! Options about limits on memory, CPU, time, processes, files and output. Rows only.

use cofferdam_policy::Field;

use crate::args::option::{BLANK, Heading, PolicyOption, Takes};
use crate::args::values;
use crate::call::defaults::most;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "memory",
        takes: Takes::One("SIZE"),
        help: "Memory of the whole tree, such as 512m",
        heading: Heading::Limits,
        leaves: &["limits.memory_mb"],
        requires: &[Field::Memory],
        apply: |draft, text| set(&mut draft.policy.limits.memory_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "cpus",
        takes: Takes::One("N"),
        help: "CPUs it may keep busy, such as 1.5",
        heading: Heading::Limits,
        leaves: &["limits.cpu_millis"],
        requires: &[Field::CpuShare],
        apply: |draft, text| set(&mut draft.policy.limits.cpu_millis, values::cpu_millis(text)),
        ..BLANK
    },
    PolicyOption {
        long: "timeout",
        takes: Takes::One("TIME"),
        help: "Wall time, such as 30s, 5m or none",
        heading: Heading::Limits,
        leaves: &["limits.wall_ms"],
        requires: &[Field::WallTime],
        apply: |draft, text| {
            let wall_ms = match text {
                "none" | "0" => Ok(most(Field::WallTime)),
                text => values::milliseconds(text),
            };
            set(&mut draft.policy.limits.wall_ms, wall_ms)
        },
        ..BLANK
    },
    PolicyOption {
        long: "cpu-time",
        takes: Takes::One("TIME"),
        help: "CPU time of the whole tree, whole seconds",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.cpu_seconds"],
        requires: &[Field::CpuTime],
        apply: |draft, text| set(&mut draft.policy.limits.cpu_seconds, values::seconds(text)),
        ..BLANK
    },
    PolicyOption {
        long: "pids",
        takes: Takes::One("N"),
        help: "Processes and threads of the whole tree",
        heading: Heading::Limits,
        leaves: &["limits.processes"],
        requires: &[Field::Processes],
        apply: |draft, text| set(&mut draft.policy.limits.processes, values::count(text)),
        ..BLANK
    },
    PolicyOption {
        long: "open-files",
        takes: Takes::One("N"),
        help: "Open files per process",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.open_files"],
        requires: &[Field::OpenFiles],
        apply: |draft, text| set(&mut draft.policy.limits.open_files, values::count(text)),
        ..BLANK
    },
    PolicyOption {
        long: "file-size",
        takes: Takes::One("SIZE"),
        help: "Largest file it can write",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.file_size_mb"],
        requires: &[Field::FileSize],
        apply: |draft, text| set(&mut draft.policy.limits.file_size_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "tmpfs-size",
        takes: Takes::One("SIZE"),
        help: "Its own scratch space: /tmp, home and /dev/shm",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.tmpfs_mb"],
        requires: &[Field::Tmpfs],
        apply: |draft, text| set(&mut draft.policy.limits.tmpfs_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "output-limit",
        takes: Takes::One("SIZE"),
        help: "Output passed on per stream; the rest is dropped",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.output_bytes"],
        requires: &[Field::Output],
        apply: |draft, text| set(&mut draft.policy.limits.output_bytes, values::bytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "layer-size",
        takes: Takes::One("SIZE"),
        help: "Changes kept per copy-on-write volume",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.layer_mb"],
        requires: &[Field::Layer],
        apply: |draft, text| set(&mut draft.policy.limits.layer_mb, values::mebibytes(text)),
        ..BLANK
    },
    PolicyOption {
        long: "layer-files",
        takes: Takes::One("N"),
        help: "Changed files per copy-on-write volume, at least 2",
        heading: Heading::Limits,
        rare: true,
        leaves: &["limits.layer_inodes"],
        requires: &[Field::Layer],
        apply: |draft, text| set(&mut draft.policy.limits.layer_inodes, values::count(text)),
        ..BLANK
    },
];

fn set(limit: &mut u64, value: Result<u64, String>) -> Result<(), String> {
    *limit = value?;
    Ok(())
}

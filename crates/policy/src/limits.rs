//! The table of limits: key, unit, range and built-in value of each.
//!
//! Decoding, validation, the schema and the built-in policy read this one table. What a host can give is the
//! backend's to say; the bounds here are what any Linux could.

use crate::field::Field;
use crate::model::Limits;

/// One limit.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Limit {
    /// Key under `limits`.
    pub key: &'static str,
    /// The promise that it belongs to.
    pub field: Field,
    /// What one of it is, in the plural.
    pub unit: &'static str,
    /// Largest value; the smallest is 1.
    pub max: u64,
    /// The built-in value.
    pub default: u64,
}

/// Most MiB that any size may have: 16 TiB.
pub(crate) const MAX_MIB: u64 = 16 * 1024 * 1024;

/// One year.
const MAX_SECONDS: u64 = 366 * 24 * 60 * 60;

/// Every limit, in the order of [`Limits`].
pub const LIMITS: &[Limit] = &[
    limit("memory_mb", Field::Memory, "MiB", MAX_MIB, 512),
    limit("cpu_seconds", Field::CpuTime, "seconds of CPU time", MAX_SECONDS, 60),
    limit("cpu_millis", Field::CpuShare, "thousandths of a CPU", 8192 * 1000, 2000),
    limit("wall_ms", Field::WallTime, "milliseconds", MAX_SECONDS * 1000, 60_000),
    limit("file_size_mb", Field::FileSize, "MiB", MAX_MIB, 1024),
    // The kernel's default fs.nr_open.
    limit("open_files", Field::OpenFiles, "open files", 1_048_576, 1024),
    // PID_MAX_LIMIT, proc_sys_kernel(5).
    limit("processes", Field::Processes, "processes and threads", 4_194_304, 128),
    limit("tmpfs_mb", Field::Tmpfs, "MiB", MAX_MIB, 256),
    limit("output_bytes", Field::Output, "bytes of each stream", 1 << 40, 10 * 1024 * 1024),
    limit("layer_mb", Field::Layer, "MiB", MAX_MIB, 256),
    limit("layer_inodes", Field::Layer, "files and directories", 1 << 32, 65_536),
];

const fn limit(key: &'static str, field: Field, unit: &'static str, max: u64, default: u64) -> Limit {
    Limit { key, field, unit, max, default }
}

impl Limit {
    /// What is accepted, as words.
    pub fn accepted(&self) -> String {
        format!("a whole number of {} from 1 to {}", self.unit, self.max)
    }
}

impl Limits {
    /// The limits with their values, in the order of [`LIMITS`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static Limit, u64)> {
        let Limits {
            memory_mb,
            cpu_seconds,
            cpu_millis,
            wall_ms,
            file_size_mb,
            open_files,
            processes,
            tmpfs_mb,
            output_bytes,
            layer_mb,
            layer_inodes,
        } = *self;
        let values = [
            memory_mb,
            cpu_seconds,
            cpu_millis,
            wall_ms,
            file_size_mb,
            open_files,
            processes,
            tmpfs_mb,
            output_bytes,
            layer_mb,
            layer_inodes,
        ];
        LIMITS.iter().zip(values)
    }

    /// The built-in limits, as [`Policy::base`](crate::Policy::base) has them.
    pub fn base() -> Limits {
        Limits::from_table(|limit| limit.default)
    }

    /// The limits whose value is what `value` says for each, asked in the order of [`LIMITS`].
    pub(crate) fn from_table(mut value: impl FnMut(&'static Limit) -> u64) -> Limits {
        let values: [u64; LIMITS.len()] = std::array::from_fn(|index| value(&LIMITS[index]));
        let [
            memory_mb,
            cpu_seconds,
            cpu_millis,
            wall_ms,
            file_size_mb,
            open_files,
            processes,
            tmpfs_mb,
            output_bytes,
            layer_mb,
            layer_inodes,
        ] = values;
        Limits {
            memory_mb,
            cpu_seconds,
            cpu_millis,
            wall_ms,
            file_size_mb,
            open_files,
            processes,
            tmpfs_mb,
            output_bytes,
            layer_mb,
            layer_inodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_members_in_their_order() {
        let limits = Limits::from_table(|limit| limit.max);
        let text = serde_json::to_value(&limits).unwrap();
        let expected: serde_json::Map<_, _> = LIMITS.iter().map(|l| (l.key.into(), l.max.into())).collect();
        assert_eq!(text, serde_json::Value::Object(expected));
        assert!(limits.iter().all(|(limit, value)| limit.max == value));
    }

    #[test]
    fn every_limit_field_has_a_limit_and_fits_its_own_bounds() {
        for field in Field::ALL.iter().filter(|field| field.name().starts_with("limits.")) {
            assert!(LIMITS.iter().any(|limit| limit.field == *field), "{field}");
        }
        assert!(LIMITS.iter().all(|limit| (1..=limit.max).contains(&limit.default)));
        assert!(LIMITS.iter().all(|l| l.field.name() == format!("limits.{}", l.key) || l.field == Field::Layer));
    }
}

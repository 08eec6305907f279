//! The table of the network's limits: key, unit, range and built-in value of each.
//!
//! Decoding, validation, the schema and the built-in policy read this one table. Holding them is the gateway's.

use crate::limits::MAX_MIB;
use crate::model::NetworkLimits;

/// One limit of the network.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NetworkLimit {
    /// Key under `network.limits`.
    pub key: &'static str,
    /// What one of it is, in the plural.
    pub unit: &'static str,
    /// Largest value; the smallest is 1.
    pub max: u64,
    /// The built-in value; none means no limit.
    pub default: Option<u64>,
}

/// Every limit, in the order of [`NetworkLimits`].
pub const NETWORK_LIMITS: &[NetworkLimit] = &[
    limit("connections", "connections open at once", 65_536, Some(256)),
    limit("connections_per_host", "connections to one host open at once", 65_536, Some(64)),
    limit("up_mb", "MiB", MAX_MIB, Some(1024)),
    limit("down_mb", "MiB", MAX_MIB, Some(10_240)),
    limit("host_up_mb", "MiB", MAX_MIB, None),
    limit("host_down_mb", "MiB", MAX_MIB, None),
    limit("kib_per_second", "KiB per second", 1 << 30, None),
    limit("names", "names", 65_536, Some(512)),
];

const fn limit(key: &'static str, unit: &'static str, max: u64, default: Option<u64>) -> NetworkLimit {
    NetworkLimit { key, unit, max, default }
}

impl NetworkLimit {
    /// What is accepted, as words.
    pub fn accepted(&self) -> String {
        let unsaid = if self.default.is_none() { "; leave the key out for no limit" } else { "" };
        format!("a whole number of {} from 1 to {}{unsaid}", self.unit, self.max)
    }
}

impl NetworkLimits {
    /// The limits with their values, in the order of [`NETWORK_LIMITS`]; none is no limit.
    pub fn iter(&self) -> impl Iterator<Item = (&'static NetworkLimit, Option<u64>)> {
        let NetworkLimits {
            connections,
            connections_per_host,
            up_mb,
            down_mb,
            host_up_mb,
            host_down_mb,
            kib_per_second,
            names,
        } = *self;
        let values = [
            Some(connections),
            Some(connections_per_host),
            Some(up_mb),
            Some(down_mb),
            host_up_mb,
            host_down_mb,
            kib_per_second,
            Some(names),
        ];
        NETWORK_LIMITS.iter().zip(values)
    }

    /// Sets the limit of that key; nothing where there is no such limit.
    pub fn set(&mut self, key: &str, value: u64) {
        let was = *self;
        let mut values = was.iter().map(|(limit, old)| if limit.key == key { Some(value) } else { old });
        *self = NetworkLimits::from_table(|_| values.next().flatten());
    }

    /// The limits whose value is what `value` says for each, or else the built-in one.
    pub(crate) fn from_table(mut value: impl FnMut(&'static NetworkLimit) -> Option<u64>) -> NetworkLimits {
        let values: [Option<u64>; 8] =
            std::array::from_fn(|index| value(&NETWORK_LIMITS[index]).or(NETWORK_LIMITS[index].default));
        let [connections, connections_per_host, up_mb, down_mb, host_up_mb, host_down_mb, kib_per_second, names] =
            values;
        NetworkLimits {
            connections: connections.unwrap_or(1),
            connections_per_host: connections_per_host.unwrap_or(1),
            up_mb: up_mb.unwrap_or(1),
            down_mb: down_mb.unwrap_or(1),
            host_up_mb,
            host_down_mb,
            kib_per_second,
            names: names.unwrap_or(1),
        }
    }
}

impl Default for NetworkLimits {
    fn default() -> NetworkLimits {
        NetworkLimits::from_table(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_members_in_their_order() {
        let limits = NetworkLimits::from_table(|limit| Some(limit.max));
        let text = serde_json::to_value(limits).unwrap();
        let expected: serde_json::Map<_, _> = NETWORK_LIMITS.iter().map(|l| (l.key.into(), l.max.into())).collect();
        assert_eq!(text, serde_json::Value::Object(expected));
        assert!(limits.iter().all(|(limit, value)| value == Some(limit.max)));
        for (limit, value) in NetworkLimits::default().iter() {
            assert_eq!(value, limit.default, "{}", limit.key);
            assert!(value.is_none_or(|value| (1..=limit.max).contains(&value)));
        }
    }
}

//! The synthetic addresses of one sandbox: one per family for each name that it has resolved.
//!
//! A synthetic address stands for a name inside one sandbox: the resolver answers with it, and a connection to it is
//! one to the name. A name has the same addresses for the life of the sandbox, so that a program may use an old answer;
//! hence the number of names is limited. The ranges belong to no host anywhere (RFC 2544, RFC 4193).
//!
//! Never decides whether a name is allowed, and never resolves one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::decide::host_name::Name;

/// Prefix of the IPv4 addresses, 198.18.0.0/15: two blocks of 256 networks of 256 addresses.
const V4: [u8; 2] = [198, 18];

/// Prefix of the IPv6 addresses, `fd63:6f66:6665:7264::/64`.
const V6: [u8; 8] = [0xfd, 0x63, 0x6f, 0x66, 0x66, 0x65, 0x72, 0x64];

/// Addresses used of each network of 256: not those that end in 0 or 255, which some programs take for network and
/// broadcast addresses.
const PER_NETWORK: u32 = 254;

/// Most names for which there are addresses.
pub const MOST: usize = 2 * 256 * PER_NETWORK as usize;

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The sandbox has resolved as many names as it may; the number is the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} names were asked for\nhint: raise `network.limits.names`, or allow hosts instead of a suffix")]
#[non_exhaustive]
pub struct AddressesExhausted(pub usize);

/// The names that one sandbox has resolved, and their addresses.
#[derive(Debug, Clone)]
pub struct SyntheticAddresses {
    most: usize,
    order: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

impl SyntheticAddresses {
    /// Empty, for at most `most` names, and never more than `MOST`.
    pub fn new(most: usize) -> SyntheticAddresses {
        SyntheticAddresses { most: most.min(MOST), order: Vec::new(), numbers: HashMap::new() }
    }

    /// The synthetic address of a name, which is the same on every call.
    pub fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, AddressesExhausted> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(numbered(*number, family));
        }
        let number = u32::try_from(self.order.len()).ok().filter(|number| (*number as usize) < self.most);
        let number = number.ok_or(AddressesExhausted(self.most))?;
        self.order.push(name.clone());
        self.numbers.insert(name.clone(), number);
        Ok(numbered(number, family))
    }

    /// The name that a synthetic address stands for; the address may be IPv4-mapped.
    pub fn lookup(&self, address: IpAddr) -> Option<&Name> {
        self.order.get(number(address.to_canonical())? as usize)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no name has been resolved.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Whether an address is in the synthetic ranges, whether or not it stands for a name.
pub fn synthetic(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets()[0] == V4[0] && address.octets()[1] & !1 == V4[1],
        IpAddr::V6(address) => address.octets().starts_with(&V6),
    }
}

fn numbered(number: u32, family: Family) -> IpAddr {
    match family {
        Family::V4 => {
            let (network, host) = (number / PER_NETWORK, number % PER_NETWORK + 1);
            Ipv4Addr::from(u32::from_be_bytes([V4[0], V4[1], 0, 0]) + network * 256 + host).into()
        }
        Family::V6 => {
            let mut octets = [0; 16];
            octets[..8].copy_from_slice(&V6);
            octets[12..].copy_from_slice(&(number + 1).to_be_bytes());
            Ipv6Addr::from(octets).into()
        }
    }
}

/// The number of a synthetic address: the inverse of `numbered`.
fn number(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(v4) if synthetic(address) => {
            let host = u32::from(v4.octets()[3]);
            let network = (u32::from(v4) >> 8) - (u32::from_be_bytes([V4[0], V4[1], 0, 0]) >> 8);
            (1..=PER_NETWORK).contains(&host).then(|| network * PER_NETWORK + host - 1)
        }
        IpAddr::V6(v6) if synthetic(address) => match v6.octets() {
            [_, _, _, _, _, _, _, _, 0, 0, 0, 0, number @ ..] => u32::from_be_bytes(number).checked_sub(1),
            _ => None,
        },
        _ => None,
    }
}

/// The name of an address in a reverse lookup (RFC 1035, 3.5; RFC 3596, 2.5).
#[cfg(test)]
pub(crate) fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|octet| [octet & 15, octet >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).chain(["ip6.arpa".to_owned()]).collect()
        }
    }
}

/// The address in such a name, in lower case; none if it names a whole network, or is no such name.
pub(crate) fn of_reverse_name(name: &str) -> Option<IpAddr> {
    if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
        let turned = octets.rsplit('.').collect::<Vec<_>>().join(".");
        return turned.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let nibbles = name.strip_suffix(".ip6.arpa")?;
    let mut value = 0u128;
    let mut count = 0;
    for label in nibbles.rsplit('.') {
        let [digit] = label.as_bytes() else { return None };
        value = value << 4 | u128::from(char::from(*digit).to_digit(16)?);
        count += 1;
    }
    (count == 32).then(|| Ipv6Addr::from(value).into())
}

#[cfg(test)]
mod tests;

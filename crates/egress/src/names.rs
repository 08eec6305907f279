//! The names that one sandbox has asked for, and the synthetic address of each.
//!
//! A synthetic address stands for a name inside one sandbox: the resolver answers with it, and a connection to it is one
//! to the name. A name keeps its addresses as long as the sandbox lives, so that a program that asked long ago still
//! arrives; hence their number is bounded. The addresses are of ranges that are no host's anywhere (RFC 2544, RFC 4193).
//!
//! Never decides whether a name is allowed, and never resolves one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::Name;

/// First of the synthetic addresses of IPv4, 198.18.0.0/15: two blocks of 256 networks of 256 addresses.
const V4: [u8; 2] = [198, 18];

/// First of the synthetic addresses of IPv6, `fd63:6f66:6665:7264::/64`.
const V6: [u8; 8] = [0xfd, 0x63, 0x6f, 0x66, 0x66, 0x65, 0x72, 0x64];

/// Addresses in use of each network of 256: not those that end in 0 or 255, which some programs take for a network's own.
const PER_NETWORK: u32 = 254;

/// Most names that there are addresses for.
pub const MOST: usize = 2 * 256 * PER_NETWORK as usize;

/// Which kind of address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// As many names as there may be; the number is the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} names were asked for\nhint: raise `network.limits.names`, or allow hosts instead of a suffix")]
pub struct Full(pub usize);

/// The names of one sandbox.
#[derive(Debug, Clone)]
pub struct Names {
    most: usize,
    order: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

impl Names {
    /// None yet, and at most `most`, or `MOST`.
    pub fn new(most: usize) -> Names {
        Names { most: most.min(MOST), order: Vec::new(), numbers: HashMap::new() }
    }

    /// The synthetic address of a name, which is the same whenever it is asked for.
    pub fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, Full> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(numbered(*number, family));
        }
        let number = u32::try_from(self.order.len()).ok().filter(|number| (*number as usize) < self.most);
        let number = number.ok_or(Full(self.most))?;
        self.order.push(name.clone());
        self.numbers.insert(name.clone(), number);
        Ok(numbered(number, family))
    }

    /// The name that a synthetic address stands for, also where it comes mapped into IPv6.
    pub fn lookup(&self, address: IpAddr) -> Option<&Name> {
        self.order.get(number(address.to_canonical())? as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Whether an address is of the synthetic ranges, whether or not it stands for a name.
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

/// The name under which an address is looked up backwards (RFC 1035, 3.5; RFC 3596, 2.5).
pub fn reverse_name(address: IpAddr) -> String {
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

/// The address that such a name, in lower case, is about. None where it is about a whole network, or about none.
pub fn of_reverse_name(name: &str) -> Option<IpAddr> {
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

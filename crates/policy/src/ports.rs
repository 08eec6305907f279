//! Sets of ports, and how a policy writes them. Pure.

use std::fmt;

/// A set of ports, as sorted ranges that neither meet nor overlap. Port 0 is in none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// 80 and 443: what an entry of `network.allow` means that names none.
    pub fn web() -> Ports {
        Ports(vec![(80, 80), (443, 443)])
    }

    /// Every port.
    pub fn all() -> Ports {
        Ports(vec![(1, u16::MAX)])
    }

    /// No port: the stand-in for what cannot be read.
    pub(crate) fn none() -> Ports {
        Ports(Vec::new())
    }

    /// The ports of these inclusive ranges; port 0 and ranges that end before they begin have none.
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u16, u16)>) -> Ports {
        let mut ranges: Vec<(u16, u16)> = ranges
            .into_iter()
            .map(|(first, last)| (first.max(1), last))
            .filter(|(first, last)| first <= last)
            .collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Ports(merged)
    }

    /// Whether it is one of them.
    pub fn contains(&self, port: u16) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= port);
        after > 0 && port <= self.0[after - 1].1
    }

    /// Whether every one of `others` is one of them.
    pub fn covers(&self, others: &Ports) -> bool {
        others.0.iter().all(|(first, last)| self.0.iter().any(|(from, to)| from <= first && last <= to))
    }

    /// Inclusive ranges in ascending order, with a gap between each and the next.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Reads a comma list of ports and ranges, or `*`; the error says in words what is wrong.
    pub fn parse(text: &str) -> Result<Ports, &'static str> {
        if text == "*" {
            return Ok(Ports::all());
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let range = match part.split_once('-') {
                None => port(part).map(|port| (port, port))?,
                Some((first, last)) => (port(first)?, port(last)?),
            };
            if range.0 > range.1 {
                return Err("a range of ports ends before it begins");
            }
            ranges.push(range);
        }
        Ok(Ports::from_ranges(ranges))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ports::all() {
            return f.write_str("*");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

fn port(text: &str) -> Result<u16, &'static str> {
    let port = number(text).and_then(|number| u16::try_from(number).ok()).filter(|&port| port > 0);
    port.ok_or("not a port: a number from 1 to 65535, a range of them, a comma list, or `*` for every port")
}

/// Decimal digits without sign or leading zero.
pub(crate) fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    (digits && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_merged_and_written_back() {
        for (text, written) in [
            ("443", "443"),
            ("443,80", "80,443"),
            ("8000-8010", "8000-8010"),
            ("8000-8010,8011,8005-8020", "8000-8020"),
            ("1-65535", "*"),
            ("*", "*"),
            ("65535", "65535"),
            ("5-5", "5"),
        ] {
            let ports = Ports::parse(text).unwrap();
            assert_eq!(ports.to_string(), written);
            assert_eq!(Ports::parse(written).unwrap(), ports);
        }
        for bad in
            ["", "0", "0-5", "65536", "080", "+80", "80,", ",80", "80-", "-80", "90-80", "a", "80 ", "*,80", "1-2-3"]
        {
            assert!(Ports::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_set_has_its_own_ports_and_no_other() {
        let ports = Ports::parse("80,443,8000-8010").unwrap();
        for port in 0..=u16::MAX {
            assert_eq!(ports.contains(port), [80, 443].contains(&port) || (8000..=8010).contains(&port), "{port}");
        }
        assert!(ports.covers(&Ports::web()) && !Ports::web().covers(&ports) && Ports::all().covers(&ports));
        assert!(Ports::web().covers(&Ports::none()) && !Ports::none().covers(&Ports::web()));
    }
}

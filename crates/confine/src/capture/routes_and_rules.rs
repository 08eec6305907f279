//! The netlink messages of a captured network: routes and rules, and redirections where ports are too many to listen at.

use super::{AF_INET, AF_INET6, DNS, LO, NetlinkMessages, TCP, Versions};

const UDP: u8 = 17;
pub(super) const NETLINK_ROUTE: u32 = 0;
const NETLINK_NETFILTER: u32 = 12;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE: u16 = libc::NLM_F_CREATE as u16;
const MAKE: u16 = CREATE | libc::NLM_F_EXCL as u16;
const APPEND: u16 = CREATE | libc::NLM_F_APPEND as u16;

const TABLE_LOCAL: u8 = 255;

impl NetlinkMessages {
    pub(super) fn new(protocol: u32, first: u32) -> NetlinkMessages {
        NetlinkMessages { protocol, first, bytes: Vec::new(), does: Vec::new() }
    }

    /// Everything that says where packets go.
    pub(super) fn routes(versions: Versions) -> NetlinkMessages {
        let mut m = NetlinkMessages::new(NETLINK_ROUTE, 0);
        m.up();
        m.version(AF_INET);
        if versions == Versions::Both {
            m.version(AF_INET6);
        }
        m
    }

    /// One table with one chain of network address translation, and a rule for each range and version.
    pub(super) fn redirections(first: u32, ranges: &[(u16, u16)], to: u16, versions: Versions) -> NetlinkMessages {
        let mut m = NetlinkMessages::new(NETLINK_NETFILTER, first);
        m.redirect(ranges, to, versions);
        m
    }

    /// One message. What it does is said where it asks for an answer.
    fn message(&mut self, kind: u16, flags: u16, does: Option<String>, body: &[u8]) {
        let number = self.first + self.does.len() as u32;
        let flags = REQUEST | flags | if does.is_some() { ACK } else { 0 };
        self.does.extend(does);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(body);
        debug_assert_eq!((self.bytes.len() - start) % 4, 0);
    }

    fn up(&mut self) {
        const NEWLINK: u16 = 16;
        const UP: u32 = 1;
        // Packets of IPv4 may be several times as long as on a wire (Linux 6.3 and later; before, the kernel passes these
        // over): all that crosses this interface is one stream's bytes on their way between two sockets.
        const GSO_IPV4_MAX_SIZE: u16 = 63;
        const GRO_IPV4_MAX_SIZE: u16 = 64;
        const LARGE: u32 = 256 * 1024;
        // struct ifinfomsg: family, type, index, flags, and which flags change
        let mut body = [0, LO, UP, UP].map(u32::to_ne_bytes).concat();
        for size in [GSO_IPV4_MAX_SIZE, GRO_IPV4_MAX_SIZE] {
            attribute(&mut body, size, &LARGE.to_ne_bytes());
        }
        self.message(NEWLINK, 0, Some("bring loopback up".into()), &body);
    }

    /// Routes and rules of one version.
    pub(super) fn version(&mut self, family: u16) {
        const NEWROUTE: u16 = 24;
        const RTN_LOCAL: u8 = 2;
        const BOOT: u8 = 3; // RTPROT_BOOT
        const OIF: u16 = 4;
        let (version, loopback, prefix, scope): (_, &[u8], u8, u8) = match family {
            AF_INET => ("IPv4", &[127, 0, 0, 0], 8, 254),
            _ => ("IPv6", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 128, 0),
        };
        // struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags
        let mut body = vec![family as u8, 0, 0, 0, TABLE_LOCAL, BOOT, scope, RTN_LOCAL, 0, 0, 0, 0];
        attribute(&mut body, OIF, &LO.to_ne_bytes());
        self.message(NEWROUTE, MAKE, Some(format!("make every address of {version} local")), &body);

        let to_loopback = [(FRA_DST, loopback.to_vec())];
        self.rule(family, 10, prefix, TO_TABLE, &to_loopback, &format!("{version} to loopback"));
        self.rule(family, 20, 0, TO_TABLE, &[(FRA_PROTOCOL, vec![TCP])], &format!("TCP over {version}"));
        let port = [DNS.to_ne_bytes(), DNS.to_ne_bytes()].concat();
        for (preference, attribute, what) in [(30, FRA_DPORT, "to"), (31, FRA_SPORT, "from")] {
            let resolver = [(FRA_PROTOCOL, vec![UDP]), (attribute, port.clone())];
            self.rule(family, preference, 0, TO_TABLE, &resolver, &format!("{what} the resolver over {version}"));
        }
        self.rule(family, 40, 0, PROHIBIT, &[], &format!("that refuses all else over {version}"));

        const DELRULE: u16 = 33;
        let mut body = rule_head(family, 0, 0, 0);
        attribute(&mut body, FRA_PRIORITY, &0u32.to_ne_bytes());
        self.message(DELRULE, 0, Some(format!("delete the first rule of {version}")), &body);
    }

    fn rule(&mut self, family: u16, preference: u32, prefix: u8, action: u8, what: &[(u16, Vec<u8>)], does: &str) {
        const NEWRULE: u16 = 32;
        let table = if action == TO_TABLE { TABLE_LOCAL } else { 0 };
        let mut body = rule_head(family, prefix, table, action);
        attribute(&mut body, FRA_PRIORITY, &preference.to_ne_bytes());
        for (kind, value) in what {
            attribute(&mut body, *kind, value);
        }
        self.message(NEWRULE, MAKE, Some(format!("add the rule {does}")), &body);
    }

    fn redirect(&mut self, ranges: &[(u16, u16)], to: u16, versions: Versions) {
        const BEGIN: u16 = 16;
        const END: u16 = 17;
        const NFTABLES: u16 = 10;
        const NEWTABLE: u16 = NFTABLES << 8;
        const NEWCHAIN: u16 = NFTABLES << 8 | 3;
        const NEWRULE: u16 = NFTABLES << 8 | 6;
        const FAMILY_ANY: u8 = 0; // of the batch's own messages
        const FAMILY_INET: u8 = 1;
        const TABLE: &[u8] = b"cofferdam\0";
        const CHAIN: &[u8] = b"out\0";
        let head = |family: u8, subsystem: u16| {
            let [high, low] = subsystem.to_be_bytes();
            vec![family, 0, high, low] // struct nfgenmsg
        };
        self.message(BEGIN, 0, None, &head(FAMILY_ANY, NFTABLES));

        let mut body = head(FAMILY_INET, 0);
        attribute(&mut body, 1, TABLE);
        attribute(&mut body, 2, &0u32.to_be_bytes()); // flags
        self.message(NEWTABLE, CREATE, Some("make the table of redirected ports".into()), &body);

        let mut hook = Vec::new();
        attribute(&mut hook, 1, &3u32.to_be_bytes()); // NF_INET_LOCAL_OUT
        attribute(&mut hook, 2, &(-100i32).to_be_bytes()); // where destinations are rewritten
        let mut body = head(FAMILY_INET, 0);
        attribute(&mut body, 1, TABLE);
        attribute(&mut body, 3, CHAIN);
        nested(&mut body, 4, &hook);
        attribute(&mut body, 5, &1u32.to_be_bytes()); // policy: accept
        attribute(&mut body, 7, b"nat\0");
        self.message(NEWCHAIN, CREATE, Some("make the chain of redirected ports".into()), &body);

        for &(low, high) in ranges {
            for version in [AF_INET, AF_INET6] {
                if version == AF_INET6 && versions == Versions::Four {
                    continue;
                }
                let mut body = head(FAMILY_INET, 0);
                attribute(&mut body, 1, TABLE);
                attribute(&mut body, 2, CHAIN);
                nested(&mut body, 4, &redirection(version, low, high, to));
                let name = if version == AF_INET { "IPv4" } else { "IPv6" };
                self.message(NEWRULE, APPEND, Some(format!("redirect ports {low} to {high} over {name}")), &body);
            }
        }
        self.message(END, 0, None, &head(FAMILY_ANY, NFTABLES));
    }
}

const FRA_DST: u16 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_PROTOCOL: u16 = 22;
const FRA_SPORT: u16 = 23;
const FRA_DPORT: u16 = 24;
const TO_TABLE: u8 = 1;
const PROHIBIT: u8 = 8;

/// `struct fib_rule_hdr`
fn rule_head(family: u16, prefix: u8, table: u8, action: u8) -> Vec<u8> {
    vec![family as u8, prefix, 0, 0, table, 0, 0, action, 0, 0, 0, 0]
}

/// `struct nlattr` and its value, filled up to four bytes.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn nested(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    attribute(to, kind | libc::NLA_F_NESTED as u16, value);
}

/// The expressions of a rule (`nf_tables`): version, not loopback, TCP, the ports, and where it goes instead.
fn redirection(version: u16, low: u16, high: u16, to: u16) -> Vec<u8> {
    const NFPROTO: u32 = 15;
    const L4PROTO: u32 = 16;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    const EQUAL: u32 = 0;
    const OTHER: u32 = 1;
    const AT_MOST: u32 = 3;
    const AT_LEAST: u32 = 5;
    let mut list = Vec::new();
    let mut expression = |name: &[u8], data: &[u8]| {
        let mut body = Vec::new();
        attribute(&mut body, 1, name);
        nested(&mut body, 2, data);
        nested(&mut list, 1, &body);
    };
    let numbers = |values: &[(u16, u32)]| {
        let mut data = Vec::new();
        for &(kind, value) in values {
            attribute(&mut data, kind, &value.to_be_bytes());
        }
        data
    };
    // Everything goes through the first register.
    let meta = |key| numbers(&[(2, key), (1, 1)]);
    let payload = |base, offset, len| numbers(&[(1, 1), (2, base), (3, offset), (4, len)]);
    let value = |bytes: &[u8]| {
        let mut data = Vec::new();
        attribute(&mut data, 1, bytes);
        data
    };
    let compare = |how, bytes: &[u8]| {
        let mut data = numbers(&[(1, 1), (2, how)]);
        nested(&mut data, 3, &value(bytes));
        data
    };
    expression(b"meta\0", &meta(NFPROTO));
    expression(b"cmp\0", &compare(EQUAL, &[version as u8]));
    if version == AF_INET {
        expression(b"payload\0", &payload(NETWORK, 16, 1));
        expression(b"cmp\0", &compare(OTHER, &[127]));
    } else {
        expression(b"payload\0", &payload(NETWORK, 24, 16));
        expression(b"cmp\0", &compare(OTHER, &std::net::Ipv6Addr::LOCALHOST.octets()));
    }
    expression(b"meta\0", &meta(L4PROTO));
    expression(b"cmp\0", &compare(EQUAL, &[TCP]));
    expression(b"payload\0", &payload(TRANSPORT, 2, 2));
    expression(b"cmp\0", &compare(AT_LEAST, &low.to_be_bytes()));
    expression(b"cmp\0", &compare(AT_MOST, &high.to_be_bytes()));
    let mut immediate = numbers(&[(1, 1)]);
    nested(&mut immediate, 2, &value(&to.to_be_bytes()));
    expression(b"immediate\0", &immediate);
    expression(b"redir\0", &numbers(&[(1, 1), (3, 2)])); // NF_NAT_RANGE_PROTO_SPECIFIED
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
    }

    /// Messages one by one: type, flags, number, body.
    fn split(mut bytes: &[u8]) -> Vec<(u16, u16, u32, Vec<u8>)> {
        let mut list = Vec::new();
        while !bytes.is_empty() {
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let len = word(0) as usize;
            list.push((word(4) as u16, (word(4) >> 16) as u16, word(8), bytes[16..len].to_vec()));
            bytes = &bytes[len..];
        }
        list
    }

    #[test]
    fn redirections_are_what_nft_makes_of_the_same_rules() {
        // ip daddr != 127.0.0.0/8 tcp dport 8000-9000 redirect to :7777, and the same with ip6 daddr != ::1
        for (version, golden) in [
            (AF_INET, include_str!("../../tests/golden/redirect4.hex")),
            (AF_INET6, include_str!("../../tests/golden/redirect6.hex")),
        ] {
            assert_eq!(redirection(version, 8000, 9000, 7777), hex(golden), "{version}");
        }
    }

    #[test]
    fn every_message_but_a_batch_frame_has_an_ack_number_and_text() {
        for versions in [Versions::Both, Versions::Four] {
            let mut c = Capture::new(versions);
            c.redirect(&[(1, 52), (54, 65535)], 60000, versions);
            let all: Vec<_> = c.messages.iter().flat_map(|m| split(&m.bytes)).collect();
            let answered: Vec<_> = all.iter().filter(|m| m.1 & ACK != 0).collect();
            let (routes, rules) = if versions == Versions::Both { (15, 6) } else { (8, 4) };
            assert_eq!((all.len(), answered.len()), (routes + rules + 2, routes + rules));
            for (i, m) in answered.iter().enumerate() {
                assert_eq!(m.2 as usize, i);
            }
            assert_eq!(c.item(0), "bring loopback up");
            assert_eq!(c.item(7), "delete the first rule of IPv4", "nothing is prohibited before its way is there");
            assert_eq!(c.item(routes), "make the table of redirected ports");
            assert_eq!(c.item(routes + 2), "redirect ports 1 to 52 over IPv4");
        }
    }

    #[test]
    fn routes_and_rules_are_these_bytes() {
        let c = Capture::new(Versions::Both);
        let all = split(&c.messages[0].bytes);
        let shown = |m: &(u16, u16, u32, Vec<u8>)| {
            let digits: String = m.3.iter().map(|b| format!("{b:02x}")).collect();
            format!("{} {:#x} {digits}", m.0, m.1)
        };
        let four: Vec<String> = all[..8].iter().map(shown).collect();
        assert_eq!(
            four,
            [
                "16 0x5 0000000001000000010000000100000008003f00000004000800400000000400",
                "24 0x605 02000000ff03fe02000000000800040001000000",
                "32 0x605 02080000ff00000100000000080006000a000000080001007f000000",
                "32 0x605 02000000ff0000010000000008000600140000000500160006000000",
                "32 0x605 02000000ff00000100000000080006001e00000005001600110000000800180035003500",
                "32 0x605 02000000ff00000100000000080006001f00000005001600110000000800170035003500",
                "32 0x605 0200000000000008000000000800060028000000",
                "33 0x5 0200000000000000000000000800060000000000",
            ]
        );
        assert!(shown(&all[8]).starts_with("24 0x605 0a000000ff030002"), "{}", shown(&all[8]));
        assert!(shown(&all[9]).ends_with("1400010000000000000000000000000000000001"), "{}", shown(&all[9]));
    }
}

"""Who lives where in the test world, and what its DNS says. Data only; the table in src/ uses the same names.

Every address exists in the world's own network namespaces and nowhere else: there is no route out of them, and the
servers answer at every address that there is.
"""

# The host on which the command runs ("W"), its link to the servers ("S"), and an address of its own that looks public.
W4, W6 = "192.0.2.2", "2606:2800:ffff::2"
S4, S6 = "192.0.2.1", "2606:2800:ffff::1"
OWN = "93.184.216.77"

# The name server of W, and one of the public ones that programs like to ask by address.
RESOLVER = "198.51.100.53"
PUBLIC_DNS = "8.8.8.8"

ALLOWED, ALLOWED6 = "93.184.216.34", "2606:2800::1"
EVIL, EVIL6 = "93.184.216.66", "2606:2800::66"
WILD = "93.184.216.40"
SECOND = "93.184.216.35"

# name -> addresses, or a word for how it behaves. A list of lists is taken in turn, one for each query of that type.
ZONE = {
    "allowed.test": [ALLOWED, ALLOWED6],
    "only4.test": [ALLOWED],
    "only6.test": [ALLOWED6],
    "second.test": [SECOND],
    # Other names at the allowed address: the ones to front for.
    "other.test": [ALLOWED],
    "evil.test": [EVIL, EVIL6],
    "wild.test": [WILD],
    "a.wild.test": [WILD],
    "deep.a.wild.test": [WILD],
    "evilwild.test": [EVIL],
    "wild.test.evil.test": [EVIL],
    "allowed.test.evil.test": [EVIL],
    "denied.wild.test": [WILD],
    "xn--bcher-kva.test": [ALLOWED],
    # Looks like allowed.test with a Cyrillic letter in it.
    "xn--llowed-2nf.test": [EVIL],
    "git.test": [SECOND],
    "pypi.test": [SECOND],
    "npm.test": [SECOND],
    "h2.test": [SECOND],
    "api.test": [SECOND],
    # Names whose owner is not to be trusted.
    "private.test": ["10.1.2.3"],
    "private172.test": ["172.16.5.5"],
    "private192.test": ["192.168.7.7"],
    "loopback.test": ["127.0.0.1"],
    "loopback2.test": ["127.0.0.2"],
    "loopback6.test": ["::1"],
    "zero.test": ["0.0.0.0"],
    "zero6.test": ["::"],
    "metadata.test": ["169.254.169.254"],
    "metadata6.test": ["fd00:ec2::254"],
    "azure.test": ["168.63.129.16"],
    "cgnat.test": ["100.64.1.1"],
    "bench.test": ["198.18.0.1"],
    "relay6to4.test": ["192.88.99.1"],
    "reserved.test": ["240.0.0.1"],
    "multicast.test": ["224.0.0.1"],
    "broadcast.test": ["255.255.255.255"],
    "mapped.test": ["::ffff:10.1.2.3"],
    "compatible.test": ["::a01:203"],
    "mappedloop.test": ["::ffff:127.0.0.1"],
    "nat64.test": ["64:ff9b::a01:203"],
    "sixtofour.test": ["2002:a01:203::1"],
    "teredo.test": ["2001:0:a01:203::1"],
    "unique.test": ["fd12:3456::1"],
    "linklocal6.test": ["fe80::1"],
    "own.test": [OWN],
    "ownlink.test": [W4],
    "own6.test": [W6],
    "mixed.test": ["10.1.2.3", EVIL],
    # Public for the first query, the host's own after that: what is checked must be what is connected to.
    "rebind.test": [[ALLOWED], ["127.0.0.1"], ["10.1.2.3"], ["127.0.0.1"]],
    "cname.test": "cname private.test",
    "goodcname.test": "cname allowed.test",
    "slow.test": "slow",
    "never.test": "never",
    "missing.test": "nxdomain",
    "broken.test": "broken",
}

# The lines of W's /etc/hosts.
HOSTS = f"127.0.0.1 localhost\n::1 localhost\n10.1.2.3 hosts.test\n{ALLOWED} hostsgood.test\n"

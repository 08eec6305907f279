//! The table of clients: programs that people use, unmodified, each tried at a host that is allowed and at one that is
//! not. Only data.

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Unique, in words joined by `-`.
    pub name: &'static str,
    /// For the table.
    pub what: &'static str,
    /// For the table: by which way it goes out.
    pub way: &'static str,
    /// Programs that must be there.
    pub needs: &'static [&'static str],
    /// Options of the command: the rules.
    pub options: &'static [&'static str],
    /// What runs inside, with the placeholders of [`crate::attempt`] and `{host}`.
    pub call: &'static [&'static str],
    /// The host that is allowed.
    pub allowed: &'static str,
    /// One that is not.
    pub refused: &'static str,
    /// What standard output has when it worked.
    pub wants: &'static str,
}

const BASE: Client = Client {
    name: "",
    what: "",
    way: CAPTURED,
    needs: &[],
    options: &["--allow", "allowed.test"],
    call: &[],
    allowed: "allowed.test",
    refused: "evil.test",
    wants: "delivered allowed.test",
};

const CAPTURED: &str = "captured: it knows of no proxy";
const PROXY: &str = "the proxy that its variables name";
const WITHOUT: &str = "captured: without proxy variables";
/// Runs its arguments without the variables that name proxies.
const BARE: &str =
    "unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY; exec \"$@\"";
const URLLIB: &str = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=8).read().decode())";
const REQUESTS: &str = "import sys, requests; print(requests.get(sys.argv[1], timeout=8).text)";
const PIP: &str = "/usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --timeout 8 \
                   --index-url https://{host}/simple/ --target /tmp/p tiny && PYTHONPATH=/tmp/p /usr/bin/python3 -c \
                   'import tiny; print(tiny.told())'";
const PIP_BARE: &str = "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; /usr/bin/python3 -m pip \
                        install -q --disable-pip-version-check --no-cache-dir --retries 0 --timeout 8 --index-url \
                        https://{host}/simple/ --target /tmp/p tiny && PYTHONPATH=/tmp/p /usr/bin/python3 -c \
                        'import tiny; print(tiny.told())'";
const NPM: &str = "mkdir /tmp/n && cd /tmp/n && HOME=/tmp npm install --no-audit --no-fund --fetch-retries 0 --registry \
                   https://{host}/ --cafile {base}/tls/ca.pem tiny >&2 && node -p 'require(\"tiny\")'";
const NPM_BARE: &str = "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; mkdir /tmp/n && cd /tmp/n \
                        && HOME=/tmp npm install --no-audit --no-fund --fetch-retries 0 --registry https://{host}/ --cafile \
                        {base}/tls/ca.pem tiny >&2 && node -p 'require(\"tiny\")'";

/// All of them.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "curl-http-proxy",
        what: "curl, http",
        way: PROXY,
        needs: &["curl"],
        call: &["curl", "-sS", "-m", "8", "http://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "curl-https-proxy",
        what: "curl, https",
        way: PROXY,
        needs: &["curl"],
        call: &["curl", "-sS", "-m", "8", "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "curl-http",
        what: "curl, http",
        way: WITHOUT,
        needs: &["curl"],
        call: &["sh", "-c", BARE, "-", "curl", "-sS", "-m", "8", "http://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "curl-https",
        what: "curl, https",
        way: WITHOUT,
        needs: &["curl"],
        call: &["sh", "-c", BARE, "-", "curl", "-sS", "-m", "8", "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "curl-ipv6",
        what: "curl, https over IPv6",
        way: WITHOUT,
        needs: &["curl"],
        call: &["sh", "-c", BARE, "-", "curl", "-6", "-sS", "-m", "8", "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "curl-http2",
        what: "curl, HTTP/2 over TLS",
        way: WITHOUT,
        needs: &["curl", "node"],
        options: &["--allow", "h2.test:8444"],
        call: &["sh", "-c", BARE, "-", "curl", "--http2", "-sS", "-m", "8", "https://{host}:8444/{canary}"],
        allowed: "h2.test",
        wants: "over h2",
        ..BASE
    },
    Client {
        name: "curl-socks",
        what: "curl, names over SOCKS 5",
        way: "the SOCKS proxy",
        needs: &["curl"],
        call: &[
            "sh",
            "-c",
            BARE,
            "-",
            "curl",
            "-x",
            "socks5h://127.0.0.1:1080",
            "-sS",
            "-m",
            "8",
            "https://{host}/{canary}",
        ],
        ..BASE
    },
    Client {
        name: "busybox-wget",
        what: "busybox wget",
        way: WITHOUT,
        needs: &["busybox"],
        call: &["sh", "-c", BARE, "-", "busybox", "wget", "-qO-", "http://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "python-urllib-proxy",
        what: "Python's urllib, https",
        way: PROXY,
        call: &["/usr/bin/python3", "-c", URLLIB, "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "python-urllib",
        what: "Python's urllib, https",
        way: WITHOUT,
        call: &["sh", "-c", BARE, "-", "/usr/bin/python3", "-c", URLLIB, "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "python-requests-proxy",
        what: "Python requests, https",
        way: PROXY,
        needs: &["/usr/lib/python3/dist-packages/requests"],
        call: &["/usr/bin/python3", "-c", REQUESTS, "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "python-requests",
        what: "Python requests, https",
        way: WITHOUT,
        needs: &["/usr/lib/python3/dist-packages/requests"],
        call: &["sh", "-c", BARE, "-", "/usr/bin/python3", "-c", REQUESTS, "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "node-fetch",
        what: "Node's fetch, https",
        needs: &["node"],
        options: &["--allow", "allowed.test", "-e", "NODE_EXTRA_CA_CERTS={base}/tls/ca.pem"],
        call: &["node", "{inside}/fetch.mjs", "https://{host}/{canary}"],
        ..BASE
    },
    Client {
        name: "java",
        what: "a JVM's URL connection, https",
        needs: &["java", "javac"],
        call: &[
            "java",
            "-Djavax.net.ssl.trustStore={base}/java/trust",
            "-cp",
            "{base}/java",
            "Fetch",
            "https://{host}/{canary}",
        ],
        ..BASE
    },
    Client {
        name: "own-resolver",
        what: "a static program that asks 8.8.8.8 itself",
        way: "captured, its question as well",
        needs: &["gcc"],
        call: &["{base}/own_resolver", "{host}", "80", "/{canary}"],
        ..BASE
    },
    Client {
        name: "git-https",
        what: "git clone, https",
        way: PROXY,
        needs: &["git"],
        options: &["--allow", "git.test"],
        call: &["sh", "-c", "git clone -q https://{host}/repo.git /tmp/c && cat /tmp/c/told"],
        allowed: "git.test",
        wants: "cloned from the test world",
        ..BASE
    },
    Client {
        name: "git-https-captured",
        what: "git clone, https",
        way: WITHOUT,
        needs: &["git"],
        options: &["--allow", "git.test"],
        call: &[
            "sh",
            "-c",
            "unset http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY; git clone -q https://{host}/repo.git /tmp/c && \
             cat /tmp/c/told",
        ],
        allowed: "git.test",
        wants: "cloned from the test world",
        ..BASE
    },
    Client {
        name: "git-ssh",
        what: "git clone, ssh",
        needs: &["git", "ssh", "dropbear"],
        options: &["--allow", "git.test:22", "-e", GIT_SSH],
        call: &["sh", "-c", "git clone -q git@{host}:{base}/www/git.test/repo.git /tmp/c && cat /tmp/c/told"],
        allowed: "git.test",
        wants: "cloned from the test world",
        ..BASE
    },
    Client {
        name: "pip-proxy",
        what: "pip install",
        way: PROXY,
        options: &["--allow", "pypi.test"],
        call: &["sh", "-c", PIP],
        allowed: "pypi.test",
        wants: "installed from the test world",
        ..BASE
    },
    Client {
        name: "pip",
        what: "pip install",
        way: WITHOUT,
        options: &["--allow", "pypi.test"],
        call: &["sh", "-c", PIP_BARE],
        allowed: "pypi.test",
        wants: "installed from the test world",
        ..BASE
    },
    Client {
        name: "npm-proxy",
        what: "npm install",
        way: PROXY,
        needs: &["npm"],
        options: &["--allow", "npm.test"],
        call: &["sh", "-c", NPM],
        allowed: "npm.test",
        wants: "installed from the test world",
        ..BASE
    },
    Client {
        name: "npm",
        what: "npm install",
        way: WITHOUT,
        needs: &["npm"],
        options: &["--allow", "npm.test"],
        call: &["sh", "-c", NPM_BARE],
        allowed: "npm.test",
        wants: "installed from the test world",
        ..BASE
    },
    Client {
        name: "server-first",
        what: "a client that waits for its mail server to speak",
        options: &["--allow", "allowed.test:25"],
        call: &["{attempt}", "raw", "to={host}", "port=25", "send=HELO {canary}\\r\\nQUIT\\r\\n"],
        wants: "speaks first",
        ..BASE
    },
    Client {
        name: "opaque-stream",
        what: "a protocol of one's own over TCP",
        options: &["--allow", "allowed.test:5000"],
        call: &["{attempt}", "raw", "to={host}", "port=5000", "send=\\x00\\x01{canary}", "half=yes"],
        wants: "echo of",
        ..BASE
    },
];

const GIT_SSH: &str = "GIT_SSH_COMMAND=ssh -o BatchMode=yes -o UserKnownHostsFile={base}/known_hosts -o ConnectTimeout=8 -i \
                       {base}/id";

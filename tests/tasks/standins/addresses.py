"""The hosts of the stand-ins by service, and where each lives. Data only.

Every address exists in the network of a lane and nowhere else: no route leads out of it. The addresses of hosts look
public, because Cofferdam refuses others; that of internal.example.org is one of those that it refuses."""

# The machine of the tasks, its link to the servers, and its name server.
MACHINE, SERVERS = "192.0.2.2", "192.0.2.1"
RESOLVER = "198.51.100.53"

HOSTS = {
    "http": [
        "downloads.example.org",
        "other.example.org",
        "attacker.github.io",
        "deb.debian.org",
        "huggingface.co",
        "internal.example.org",
    ],
    "git-https": ["git.example.org", "github.com"],
    "npm-registry": ["registry.npmjs.org", "registry.yarnpkg.com"],
    "pypi": ["pypi.org", "files.pythonhosted.org"],
    "crates": ["index.crates.io", "static.crates.io"],
    "go-proxy": ["proxy.golang.org", "sum.golang.org"],
    "maven": ["repo.maven.apache.org", "plugins.gradle.org"],
    "model-api": ["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"],
}

NAMES = [name for names in HOSTS.values() for name in names]

# What the name server says.
ZONE = {name: [f"93.184.216.{10 + at}"] for at, name in enumerate(NAMES)} | {"internal.example.org": ["10.1.2.3"]}

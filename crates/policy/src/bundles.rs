//! Bundles of hosts: `@pypi` in a list of what may be reached stands for the hosts that tools of that name use.
//!
//! A bundle is expanded when it is read: a policy, and what is reported of it, has the hosts and never the name. Each host is
//! named exactly. No bundle has a host on which anyone can publish under a name of their own, such as user pages or
//! the storage of a cloud. Pure.

use crate::allow::{AllowEntry, AllowRule};
use crate::error::closest;

/// The sign before a bundle's name.
pub const SIGN: char = '@';

/// Hosts that belong together, under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostBundle {
    /// Its name, without the `@`.
    pub name: &'static str,
    /// Its entries, as `network.allow` takes them.
    pub hosts: &'static [&'static str],
    /// What it is for.
    pub purpose: &'static str,
    /// What a program can send out by it.
    pub lets_out: &'static str,
}

/// What every registry of packages that is only read lets out.
const NAMES_ALONE: &str = "package names, which can be made up to carry data, to the registry; with any token that the program has, \
                           a package of its own";

/// Every bundle. The first ones are registries of packages, then code, then models.
pub const HOST_BUNDLES: &[HostBundle] = &[
    HostBundle {
        name: "pypi",
        hosts: &["pypi.org:443", "files.pythonhosted.org:443"],
        purpose: "`pip`, `uv`, `poetry`: download packages from the Python Package Index",
        lets_out: "package names, which can be made up to carry data, to the index; uploads go to another host",
    },
    HostBundle {
        name: "npm",
        hosts: &["registry.npmjs.org:443", "registry.yarnpkg.com:443"],
        purpose: "`npm`, `npx`, `pnpm`, `yarn`: packages of the npm registry. Headers for native add-ons are at nodejs.org",
        lets_out: NAMES_ALONE,
    },
    HostBundle {
        name: "crates",
        hosts: &["index.crates.io:443", "static.crates.io:443"],
        purpose: "`cargo`: download crates from crates.io",
        lets_out: "crate names, which can be made up to carry data, to the registry; uploads go to another host",
    },
    HostBundle {
        name: "go",
        hosts: &["proxy.golang.org:443", "sum.golang.org:443"],
        purpose: "`go`: modules and toolchains from the module mirror, and their checksums",
        lets_out: "module paths, which can be made up to carry data: the mirror asks the host that a path names",
    },
    HostBundle {
        name: "maven",
        hosts: &["repo.maven.apache.org:443", "repo1.maven.org:443"],
        purpose: "`mvn`, `gradle`, `sbt`: artifacts of Maven Central",
        lets_out: "artifact names, which can be made up to carry data, to the repository; uploads go to another host",
    },
    HostBundle {
        name: "gradle",
        hosts: &[
            "plugins.gradle.org:443",
            "plugins-artifacts.gradle.org:443",
            "services.gradle.org:443",
            "downloads.gradle.org:443",
        ],
        purpose: "`gradle`: plugins and Gradle itself; artifacts are `@maven`'s",
        lets_out: NAMES_ALONE,
    },
    HostBundle {
        name: "debian",
        hosts: &["deb.debian.org:80,443", "security.debian.org:80,443"],
        purpose: "`apt`: packages of Debian, over plain HTTP as well, which apt checks by signatures",
        lets_out: "package names, which can be made up to carry data, to the mirror and, over plain HTTP, to anyone on the network path",
    },
    HostBundle {
        name: "docker-hub",
        hosts: &[
            "registry-1.docker.io:443",
            "auth.docker.io:443",
            "index.docker.io:443",
            "production.cloudflare.docker.com:443",
            "docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com:443",
        ],
        purpose: "`skopeo`, `crane` and other clients: images of Docker Hub",
        lets_out: "with any account that the program has, an image with any content: data leaves",
    },
    HostBundle {
        name: "github",
        hosts: &[
            "github.com:443",
            "api.github.com:443",
            "codeload.github.com:443",
            "raw.githubusercontent.com:443",
            "objects.githubusercontent.com:443",
            "release-assets.githubusercontent.com:443",
        ],
        purpose: "`git` over HTTPS, `gh`, downloads of archives and releases. Not user pages, nor ssh, nor large files of LFS",
        lets_out: "with any token that the program has, a push, an issue or a gist with any content: data leaves",
    },
    HostBundle {
        name: "huggingface",
        hosts: &[
            "huggingface.co:443",
            "hf.co:443",
            "cdn-lfs.huggingface.co:443",
            "cdn-lfs.hf.co:443",
            "cdn-lfs-us-1.hf.co:443",
            "cdn-lfs-eu-1.hf.co:443",
            "cas-server.xethub.hf.co:443",
            "cas-bridge.xethub.hf.co:443",
            "transfer.xethub.hf.co:443",
        ],
        purpose: "`hf`, `transformers`, `datasets`: models and data of the Hugging Face Hub",
        lets_out: "with any token that the program has, a repository with any content: data leaves",
    },
    HostBundle {
        name: "anthropic",
        hosts: &["api.anthropic.com:443"],
        purpose: "the API of Claude's models",
        lets_out: "whatever the program sends to a model, with any key: data leaves",
    },
    HostBundle {
        name: "openai",
        hosts: &["api.openai.com:443"],
        purpose: "the API of OpenAI's models",
        lets_out: "whatever the program sends to a model, with any key: data leaves",
    },
    HostBundle {
        name: "gemini",
        hosts: &["generativelanguage.googleapis.com:443"],
        purpose: "the API of Gemini's models",
        lets_out: "whatever the program sends to a model, with any key: data leaves",
    },
];

/// Words that people write for a bundle that is called otherwise.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("apt", "debian"),
    ("cargo", "crates"),
    ("claude", "anthropic"),
    ("docker", "docker-hub"),
    ("git", "github"),
    ("golang", "go"),
    ("google", "gemini"),
    ("hf", "huggingface"),
    ("java", "maven"),
    ("node", "npm"),
    ("pip", "pypi"),
    ("python", "pypi"),
    ("rust", "crates"),
    ("yarn", "npm"),
];

impl HostBundle {
    /// The rules that it stands for.
    pub fn rules(&self) -> Vec<AllowRule> {
        // A test reads every entry.
        self.hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }
}

/// Why a text of `network.allow` stands for no rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllowFault {
    /// It is no entry.
    #[error("{0}")]
    Entry(&'static str),
    /// It is no bundle; and the name of the one that was probably meant, without the `@`.
    #[error("no bundle of hosts has this name")]
    Bundle(Option<&'static str>),
}

impl AllowFault {
    /// The bundle that was probably meant, with its `@`.
    pub fn meant(self) -> Option<String> {
        match self {
            AllowFault::Bundle(meant) => meant.map(|name| format!("{SIGN}{name}")),
            AllowFault::Entry(_) => None,
        }
    }
}

/// The rules that a text of `network.allow` stands for: those of the bundle, or the one of the entry.
///
/// # Errors
/// What is wrong with it.
pub fn allow_rules(text: &str) -> Result<Vec<AllowRule>, AllowFault> {
    let Some(name) = text.strip_prefix(SIGN) else {
        let entry: AllowEntry = text.parse().map_err(AllowFault::Entry)?;
        return Ok(vec![entry.into()]);
    };
    if let Some(bundle) = HOST_BUNDLES.iter().find(|bundle| bundle.name == name) {
        return Ok(bundle.rules());
    }
    let other = OTHER_NAMES.iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, name)| *name);
    Err(AllowFault::Bundle(other.or_else(|| closest(name, HOST_BUNDLES.iter().map(|bundle| bundle.name)))))
}

/// Every bundle's name with its `@`, and commas between them.
pub fn bundle_names() -> String {
    HOST_BUNDLES.iter().map(|bundle| format!("{SIGN}{}", bundle.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::To;

    /// Suffixes below which anybody has a name of their own.
    const SHARED: &[&str] = &[
        "amazonaws.com",
        "azureedge.net",
        "blob.core.windows.net",
        "cloudfront.net",
        "github.io",
        "gist.github.com",
        "gitlab.io",
        "hf.space",
        "herokuapp.com",
        "netlify.app",
        "pages.dev",
        "storage.googleapis.com",
        "vercel.app",
        "workers.dev",
    ];

    #[test]
    fn each_entry_is_one_exact_host_with_ports() {
        for bundle in HOST_BUNDLES {
            assert_eq!(bundle.rules().len(), bundle.hosts.len(), "@{}", bundle.name);
            assert!(!bundle.hosts.is_empty() && !bundle.purpose.is_empty() && !bundle.lets_out.is_empty());
            for (rule, text) in bundle.rules().iter().zip(bundle.hosts) {
                let To::Host { name } = &rule.entry.to else { panic!("@{}: {text} is no host", bundle.name) };
                assert!(name.contains('.') && text.contains(':'), "@{}: {text}", bundle.name);
                let shared = SHARED.iter().any(|shared| name == shared || name.ends_with(&format!(".{shared}")));
                assert!(!shared, "@{}: anybody publishes below {text}", bundle.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_those_meant_are_there() {
        let names: std::collections::BTreeSet<&str> = HOST_BUNDLES.iter().map(|bundle| bundle.name).collect();
        assert_eq!(names.len(), HOST_BUNDLES.len());
        for (other, name) in OTHER_NAMES {
            assert!(names.contains(name) && !names.contains(other), "{other}");
        }
    }

    #[test]
    fn bundle_stands_for_its_hosts() {
        let hosts = |text: &str| -> Vec<String> {
            allow_rules(text).unwrap().iter().map(|rule| rule.entry.to_string()).collect()
        };
        assert_eq!(hosts("@pypi"), ["pypi.org:443", "files.pythonhosted.org:443"]);
        assert_eq!(hosts("pypi.org"), ["pypi.org"]);
    }

    #[test]
    fn misspelt_bundle_is_named() {
        let meant = |text: &str| allow_rules(text).unwrap_err().meant();
        for (given, name) in [
            ("@pipy", "@pypi"),
            ("@PyPI", "@pypi"),
            ("@pip", "@pypi"),
            ("@Cargo", "@crates"),
            ("@githb", "@github"),
            ("@docker", "@docker-hub"),
            ("@docker_hub", "@docker-hub"),
        ] {
            assert_eq!(meant(given).as_deref(), Some(name), "{given}");
        }
        for other in ["@", "@something-else", "@pypi:443", "@pypi,@npm"] {
            assert_eq!(allow_rules(other).map_err(AllowFault::meant), Err(None), "{other}");
        }
        assert_eq!(allow_rules("*"), Err(AllowFault::Entry("a lone `*` means everything: that is no list")));
    }

    #[test]
    fn single_entry_is_never_a_bundle() {
        for text in ["@pypi", "@pipy", "@"] {
            assert!(text.parse::<AllowEntry>().unwrap_err().contains("bundle"), "{text}");
            assert!(text.parse::<crate::allow::DenyEntry>().unwrap_err().contains("bundle"), "{text}");
        }
    }
}

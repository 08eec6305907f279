//! `cargo xtask deps`: holds the dependencies to deny.toml, the crates to their layers, and the files of each crate to
//! imports without large circles.
//!
//! deny.toml is the one list, in cargo-deny's own format, so that `cargo deny check` reads the same file; this task
//! reads the parts of it that need no network: licences, banned crates, duplicate versions, sources. What cargo-deny
//! has no words for, the direction between this workspace's crates, stands in [`LAYERS`], and the direction inside the
//! engine in [`ENGINE_LEVELS`]; `imports` reads which file imports which. Advisories are cargo-deny's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toml::Table;

use crate::Result;
use crate::imports::Graph;
use crate::shell::{cargo, output};
use crate::workspace::Workspace;

/// Which of the workspace's crates a crate may depend on, directly. A crate that is not named may not exist: adding one
/// means saying here where it stands. Dev-dependencies count as well.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("cofferdam-policy", &[]),
    ("cofferdam-audit", &["cofferdam-policy"]),
    ("cofferdam-confine", &[]),
    ("cofferdam-command", &["cofferdam-confine"]),
    ("cofferdam-egress", &["cofferdam-policy", "cofferdam-confine"]),
    ("cofferdam-test-containers", &[]),
    (
        "cofferdam-engine",
        &["cofferdam-policy", "cofferdam-audit", "cofferdam-confine", "cofferdam-egress", "cofferdam-test-containers"],
    ),
    ("cofferdam-guard", &["cofferdam-policy", "cofferdam-confine", "cofferdam-engine"]),
    ("cofferdam-compat", &["cofferdam-policy", "cofferdam-confine", "cofferdam-engine"]),
    ("cofferdam-profiles", &["cofferdam-policy", "cofferdam-engine"]),
    (
        "cofferdam-config",
        &["cofferdam-policy", "cofferdam-command", "cofferdam-engine", "cofferdam-guard", "cofferdam-profiles"],
    ),
    ("cofferdam-compile", &["cofferdam-policy", "cofferdam-profiles"]),
    ("cofferdam-python", &["cofferdam-policy", "cofferdam-engine", "cofferdam-compat", "cofferdam-profiles"]),
    (
        "cofferdam",
        &[
            "cofferdam-policy",
            "cofferdam-config",
            "cofferdam-engine",
            "cofferdam-compat",
            "cofferdam-profiles",
            "cofferdam-test-containers",
        ],
    ),
    ("cofferdam-server", &["cofferdam-policy", "cofferdam-config", "cofferdam-engine", "cofferdam-profiles"]),
    (
        "cofferdam-escape",
        &["cofferdam-policy", "cofferdam-confine", "cofferdam-engine", "cofferdam", "cofferdam-test-containers"],
    ),
    ("cofferdam-programs", &[]),
    ("cofferdam-egress-tests", &[]),
    ("cofferdam-soak", &["cofferdam-policy", "cofferdam-engine"]),
    ("cofferdam-bench", &["cofferdam-policy", "cofferdam-command", "cofferdam-engine", "cofferdam-guard"]),
    ("xtask", &["cofferdam-policy", "cofferdam-engine", "cofferdam", "cofferdam-test-containers"]),
];

/// The levels of the engine's files and folders, the highest first. Each imports from its own level and from those below.
pub(crate) const ENGINE_LEVELS: &[&[&str]] = &[
    &["lib", "doctor", "session"],
    &["audited_run", "engine"],
    &["prepared"],
    &["pool", "python_name"],
    &["backends", "host"],
    &["run", "repository", "task"],
    &["plan", "io", "start_failures"],
    &["outcome", "monitor"],
    &["failure", "host_programs", "proctree", "process_limits", "progress"],
];

/// The entry of the task table.
pub(crate) fn run(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err(format!("unknown arguments {arguments:?}; none is accepted"));
    }
    let workspace = Workspace::read()?;
    let root = &workspace.root;
    let text =
        std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("cannot read deny.toml: {error}"))?;
    let rules = Rules::parse(&text)?;
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1"]);
    for target in &rules.targets {
        command.args(["--filter-platform", target]);
    }
    let metadata: Value =
        serde_json::from_str(&output(&mut command)?).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = packages(&metadata)?;
    let mut complaints = rules.check(&packages);
    complaints.extend(check_layers(&packages));
    complaints.extend(check_imports(&workspace)?);
    if complaints.is_empty() {
        eprintln!("{} packages hold to deny.toml, and the workspace to its layers", packages.len());
        return Ok(());
    }
    for complaint in &complaints {
        eprintln!("  {complaint}");
    }
    Err(format!("{} complaints", complaints.len()))
}

/// One package of the resolved graph.
#[derive(Debug, Clone, Default)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for the workspace's own.
    source: Option<String>,
    /// Names of direct dependencies of every kind, and whether any has the requirement `*`.
    dependencies: Vec<(String, bool)>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let resolved: BTreeSet<&str> =
        metadata["resolve"]["nodes"].as_array().into_iter().flatten().filter_map(|node| node["id"].as_str()).collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let all = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(all
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| resolved.contains(id)))
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            version: text(&package["version"]).unwrap_or_default(),
            license: text(&package["license"]),
            source: text(&package["source"]),
            dependencies: package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|dependency| {
                    let any = dependency["req"] == "*" && dependency["path"].is_null();
                    Some((text(&dependency["name"])?, any))
                })
                .collect(),
        })
        .collect())
}

/// The rules of deny.toml that this task enforces.
#[derive(Debug, Default)]
struct Rules {
    targets: Vec<String>,
    licenses: BTreeSet<String>,
    /// Crate, then its own licences besides.
    license_exceptions: BTreeMap<String, BTreeSet<String>>,
    /// Crate (optionally `name@version`), then the reason.
    banned: BTreeMap<String, String>,
    /// Crates whose several versions are accepted.
    skipped: BTreeSet<String>,
    registries: BTreeSet<String>,
}

impl Rules {
    /// Reads deny.toml. Every exception must carry a reason.
    fn parse(text: &str) -> Result<Rules> {
        let table: Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
        let section = |name: &str| table.get(name).and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let (graph, licenses, bans, sources) =
            (section("graph"), section("licenses"), section("bans"), section("sources"));
        for (where_, table, key) in [
            ("bans", &bans, "multiple-versions"),
            ("bans", &bans, "wildcards"),
            ("sources", &sources, "unknown-registry"),
            ("sources", &sources, "unknown-git"),
        ] {
            if table.get(key).and_then(toml::Value::as_str) != Some("deny") {
                return Err(format!("deny.toml: {where_}.{key} must be \"deny\""));
            }
        }
        let mut rules = Rules {
            targets: strings(&graph, "targets"),
            licenses: strings(&licenses, "allow").into_iter().collect(),
            registries: strings(&sources, "allow-registry").into_iter().collect(),
            ..Rules::default()
        };
        for entry in entries(&licenses, "exceptions")? {
            rules.license_exceptions.insert(entry.name, entry.allow.into_iter().collect());
        }
        for entry in entries(&bans, "deny")? {
            rules.banned.insert(entry.name, entry.reason);
        }
        for entry in entries(&bans, "skip")? {
            rules.skipped.insert(entry.name);
        }
        Ok(rules)
    }

    fn check(&self, packages: &[Package]) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in packages {
            let full = format!("{}@{}", package.name, package.version);
            versions.entry(&package.name).or_default().insert(&package.version);
            if let Some(reason) = self.banned.get(&package.name).or_else(|| self.banned.get(&full)) {
                complaints.push(format!("{full} is banned: {reason}"));
            }
            if let Some(source) = &package.source {
                let registry = source.strip_prefix("registry+").unwrap_or(source);
                if !self.registries.contains(registry) {
                    complaints.push(format!("{full} comes from {source}, which deny.toml does not allow"));
                }
            }
            let extra = self.license_exceptions.get(&package.name);
            let allowed =
                |license: &str| self.licenses.contains(license) || extra.is_some_and(|extra| extra.contains(license));
            match &package.license {
                None => complaints.push(format!("{full} names no licence")),
                Some(expression) => match license_holds(expression, &allowed) {
                    Ok(true) => {}
                    Ok(false) => {
                        complaints.push(format!("{full} is licensed {expression}, which deny.toml does not allow"))
                    }
                    Err(error) => complaints.push(format!("{full}: licence {expression}: {error}")),
                },
            }
            if package.source.is_none() {
                for (name, _) in package.dependencies.iter().filter(|(_, any)| *any) {
                    complaints.push(format!("{full} accepts any version of {name}"));
                }
            }
        }
        let mut unused: BTreeSet<&str> = self.skipped.iter().map(|name| base(name)).collect();
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            unused.remove(name);
            let unexplained: Vec<&&str> = versions
                .iter()
                .filter(|version| !self.skipped.contains(*name) && !self.skipped.contains(&format!("{name}@{version}")))
                .collect();
            // One version may go without an excuse: the others are what has to be explained.
            if unexplained.len() > 1 {
                let list = versions.iter().copied().collect::<Vec<_>>().join(", ");
                complaints.push(format!("{name} is there in several versions ({list}) and bans.skip does not name it"));
            }
        }
        complaints.extend(unused.into_iter().map(|name| format!("bans.skip names {name}, which has one version only")));
        complaints
    }
}

fn check_layers(packages: &[Package]) -> Vec<String> {
    let own: BTreeSet<&str> =
        packages.iter().filter(|package| package.source.is_none()).map(|package| package.name.as_str()).collect();
    let mut complaints = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_none()) {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            complaints
                .push(format!("{} stands in no layer: say in xtask/src/deps.rs what it may depend on", package.name));
            continue;
        };
        for (name, _) in package.dependencies.iter().filter(|(name, _)| own.contains(name.as_str())) {
            if !allowed.contains(&name.as_str()) && *name != package.name {
                complaints.push(format!("{} must not depend on {name}", package.name));
            }
        }
    }
    complaints
}

/// Complaints about the imports between the files of each crate.
fn check_imports(workspace: &Workspace) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in &workspace.packages {
        // Init is a program of its own, which the build of its crate compiles.
        for source in ["src", "init"].map(|name| package.directory.join(name)) {
            if !workspace.root.join(&source).is_dir() {
                continue;
            }
            let graph = Graph::read(&workspace.root.join(&source))?;
            for circle in graph.circles() {
                complaints.push(format!("{}: these files import each other: {}", source.display(), circle.join(", ")));
            }
            if package.name == "cofferdam-engine" {
                let upward = graph.upward(ENGINE_LEVELS);
                complaints.extend(upward.into_iter().map(|it| format!("{}: {it}", source.display())));
            }
        }
    }
    Ok(complaints)
}

/// An entry such as `{ crate = "name", reason = "…" }`.
struct Entry {
    name: String,
    reason: String,
    allow: Vec<String>,
}

fn entries(table: &Table, key: &str) -> Result<Vec<Entry>> {
    let list = table.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    list.iter()
        .map(|entry| {
            let text = |name: &str| entry.get(name).and_then(toml::Value::as_str).map(str::to_owned);
            let name = text("crate").ok_or_else(|| format!("deny.toml: an entry of {key} has no `crate`"))?;
            let allow = entry.as_table().map(|table| strings(table, "allow")).unwrap_or_default();
            // cargo-deny takes no reason for a licence exception; a comment has to do there.
            let reason = match text("reason") {
                Some(reason) => reason,
                None if !allow.is_empty() => String::new(),
                None => return Err(format!("deny.toml: {key}: {name} has no `reason`")),
            };
            Ok(Entry { name, reason, allow })
        })
        .collect()
}

fn strings(table: &Table, key: &str) -> Vec<String> {
    let list = table.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn base(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Whether an SPDX expression can be met with allowed licences. `A WITH B` counts as one licence; the old `A/B` as `OR`.
fn license_holds(expression: &str, allowed: &dyn Fn(&str) -> bool) -> std::result::Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let holds = any_of(&tokens, &mut at, allowed)?;
    if at == tokens.len() { Ok(holds) } else { Err(format!("unexpected `{}`", tokens[at])) }
}

fn any_of(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> std::result::Result<bool, String> {
    let mut holds = all_of(tokens, at, allowed)?;
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= all_of(tokens, at, allowed)?;
    }
    Ok(holds)
}

fn all_of(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> std::result::Result<bool, String> {
    let mut holds = one(tokens, at, allowed)?;
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one(tokens, at, allowed)?;
    }
    Ok(holds)
}

fn one(tokens: &[&str], at: &mut usize, allowed: &dyn Fn(&str) -> bool) -> std::result::Result<bool, String> {
    let token = *tokens.get(*at).ok_or("ends too early")?;
    *at += 1;
    match token {
        "(" => {
            let holds = any_of(tokens, at, allowed)?;
            if tokens.get(*at) != Some(&")") {
                return Err("a parenthesis is not closed".into());
            }
            *at += 1;
            Ok(holds)
        }
        ")" | "AND" | "OR" | "WITH" => Err(format!("unexpected `{token}`")),
        license if tokens.get(*at) == Some(&"WITH") => {
            let exception = tokens.get(*at + 1).ok_or("ends too early")?;
            *at += 2;
            Ok(allowed(&format!("{license} WITH {exception}")))
        }
        license => Ok(allowed(license)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
        exceptions = [{ crate = "odd", allow = ["Zlib"] }]
        [bans]
        multiple-versions = "deny"
        wildcards = "deny"
        deny = [{ crate = "openssl", reason = "rustls" }]
        skip = [{ crate = "twice@1.0.0", reason = "upstream" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://registry.example/index"]
    "#;

    fn package(name: &str, version: &str, license: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            license: Some(license.into()),
            source: Some("registry+https://registry.example/index".into()),
            dependencies: Vec::new(),
        }
    }

    /// Complaints about these packages, beside a pair that uses the exception of `twice`.
    fn complaints(packages: &[Package]) -> Vec<String> {
        let mut all = vec![package("twice", "1.0.0", "MIT"), package("twice", "2.0.0", "MIT")];
        all.extend_from_slice(packages);
        Rules::parse(RULES).unwrap().check(&all)
    }

    #[test]
    fn a_package_that_holds_to_the_rules_passes() {
        assert_eq!(complaints(&[package("fine", "1.0.0", "MIT OR GPL-3.0")]), Vec::<String>::new());
        assert_eq!(complaints(&[package("odd", "1.0.0", "Zlib")]), Vec::<String>::new());
    }

    #[test]
    fn each_rule_complains() {
        assert!(complaints(&[package("x", "1.0.0", "GPL-3.0")])[0].contains("does not allow"));
        assert!(complaints(&[package("x", "1.0.0", "Zlib")])[0].contains("does not allow"));
        assert!(complaints(&[package("openssl", "1.0.0", "MIT")])[0].contains("banned: rustls"));
        let elsewhere = Package { source: Some("git+https://git.example".into()), ..package("x", "1.0.0", "MIT") };
        assert!(complaints(&[elsewhere])[0].contains("comes from"));
        let two = [package("x", "1.0.0", "MIT"), package("x", "2.0.0", "MIT")];
        assert!(complaints(&two)[0].contains("several versions (1.0.0, 2.0.0)"));
        let unlicensed = Package { license: None, ..package("x", "1.0.0", "") };
        assert!(complaints(&[unlicensed])[0].contains("no licence"));
    }

    #[test]
    fn a_third_version_is_not_covered_by_the_exception_of_one() {
        assert!(complaints(&[package("twice", "3.0.0", "MIT")])[0].contains("several versions"));
    }

    #[test]
    fn an_exception_that_is_no_longer_needed_complains() {
        let found = Rules::parse(RULES).unwrap().check(&[package("twice", "1.0.0", "MIT")]);
        assert_eq!(found, ["bans.skip names twice, which has one version only"]);
    }

    #[test]
    fn an_exception_without_a_reason_is_refused() {
        let text = RULES.replace(r#", reason = "upstream""#, "");
        assert!(Rules::parse(&text).unwrap_err().contains("twice@1.0.0 has no `reason`"));
    }

    #[test]
    fn licence_expressions() {
        let allowed = |license: &str| ["A", "B", "C WITH x"].contains(&license);
        for (expression, expected) in [
            ("A", true),
            ("Z", false),
            ("Z OR A", true),
            ("A AND Z", false),
            ("A AND B", true),
            ("(Z OR A) AND B", true),
            ("Z OR A AND B", true),
            ("Z AND A OR Z", false),
            ("A/Z", true),
            ("C WITH x", true),
            ("C", false),
        ] {
            assert_eq!(license_holds(expression, &allowed), Ok(expected), "{expression}");
        }
        assert!(license_holds("(A", &allowed).is_err());
        assert!(license_holds("A OR", &allowed).is_err());
        assert!(license_holds("A B", &allowed).is_err());
    }

    #[test]
    fn layers_are_held() {
        let own = |name: &str, on: &[&str]| Package {
            name: name.into(),
            dependencies: on.iter().map(|name| ((*name).to_owned(), false)).collect(),
            ..Package::default()
        };
        let policy = own("cofferdam-policy", &["serde"]);
        assert!(check_layers(&[policy.clone(), own("cofferdam-engine", &["cofferdam-policy"])]).is_empty());
        let found = check_layers(&[policy, own("cofferdam-confine", &["cofferdam-policy"])]);
        assert_eq!(found, ["cofferdam-confine must not depend on cofferdam-policy"]);
        assert!(check_layers(&[own("stray", &[])])[0].contains("stands in no layer"));
    }

    #[test]
    fn the_files_of_this_workspace_hold_to_their_levels() {
        assert_eq!(check_imports(&Workspace::read().unwrap()), Ok(Vec::new()));
    }

    /// The packages of the engine, as a program links it that asks for these features.
    fn linked(features: &[&str]) -> Vec<String> {
        let mut tree = cargo();
        tree.args(["tree", "--locked", "--package", "cofferdam-engine", "--edges", "normal", "--prefix", "none"]);
        let text = output(tree.args(["--format", "{p}"]).args(features)).unwrap();
        text.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn a_program_that_embeds_the_jail_links_no_client_http_or_signatures() {
        let (jail, all) = (linked(&["--no-default-features"]), linked(&[]));
        let absent = [
            ["bollard", "bollard-stubs", "oci-spec", "tar", "flate2"].as_slice(), // container engines, images
            &["http", "hyper", "hyper-util", "hickory-resolver", "tokio"],        // the egress gateway
            &["ed25519-dalek", "signature"],                                      // checkpoints
        ];
        for package in absent.concat() {
            assert!(all.iter().any(|name| name == package), "{package} has another name by now");
            assert!(!jail.iter().any(|name| name == package), "{package} is linked");
        }
        assert!(jail.iter().any(|name| name == "cofferdam-confine"), "{jail:?}");
    }

    #[test]
    fn the_compiler_is_out_of_reach_of_the_engine_and_the_command() {
        // Through any path of allowed layers.
        let allowed = |name: &str| LAYERS.iter().find(|(layer, _)| *layer == name).map_or(&[][..], |(_, on)| on);
        let mut reached = vec!["cofferdam-engine", "cofferdam"];
        let mut next = 0;
        while next < reached.len() {
            reached.extend(allowed(reached[next]).iter().filter(|name| !reached.contains(name)).collect::<Vec<_>>());
            next += 1;
        }
        assert!(!reached.contains(&"cofferdam-compile"), "{reached:?}");
    }
}

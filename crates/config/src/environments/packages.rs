//! Packages of a Python environment: installed once, into a virtual environment in the caller's cache, and shown read-only to
//! the code of later calls.
//!
//! ```text
//! names, interpreter ─ hash ─▶ KEY ─ known? ─▶ packages/KEY/tree/venv
//!                                     └─ no: pip in a sandbox that reaches the index alone ─▶ a directory beside, which takes
//!                                            its place when pip has ended
//! ```
//!
//! pip may run code of the packages, and all that it wrote is as untrusted as they are: it is only ever shown to sandboxes, and
//! `discover` decides what of it.

use std::fmt;
use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_engine::audit::hidden::{Remembered, is_known, take};
use cofferdam_engine::audit::{hex, opened, sha256};
use cofferdam_engine::network_address::{is_this_machine, not_offered, not_offered_name};
use cofferdam_engine::network_event::{NetworkKind, NetworkReason};
use cofferdam_engine::{Engine, Io, Outcome};
use cofferdam_policy::bundles::allow_rules;
use cofferdam_policy::{
    Access, AllowEntry, AllowRule, BaseDirectory, Field, HttpUrl, Mount, Network, NetworkMode, Ports, To, UrlHost, text,
};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::discover::HostTree;
use super::preset::{CodeSource, found_python, leads_to_this_python, preset};
use super::{Packages, Surroundings, eval_base};

/// What installs the packages; it runs in the sandbox.
const INSTALL: &str = include_str!("install_packages.py");

/// The hosts that are reached while packages are installed that name no index.
const PYPI: &str = "@pypi";

/// Wall time of an installation, milliseconds.
const TIMEOUT_MS: u64 = 30 * 60 * 1000;

/// Longest report of pip that is read, bytes.
const LONGEST_REPORT: u64 = 16 << 20;

/// Most lines of pip's errors in a message.
const MOST_LINES: usize = 3;

/// Why packages cannot be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackagesError {
    /// There is no directory for them.
    #[error("there is no home directory to keep packages in\nhint: set HOME, or XDG_CACHE_HOME")]
    NoCache,
    /// There is no interpreter.
    #[error(transparent)]
    Preset(#[from] super::PresetError),
    /// The cache cannot be written.
    #[error("cannot keep packages in {}: {source}\nhint: remove it to install them anew, or name another place with XDG_CACHE_HOME", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The sandbox cannot be made.
    #[error("the packages {packages} cannot be installed: {message}{}", hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default())]
    Sandbox {
        /// The packages.
        packages: String,
        /// Why not.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// pip failed.
    #[error("the packages {packages} could not be installed: {reason}\nhint: {hint}")]
    Failed {
        /// The packages.
        packages: String,
        /// What was refused, or what pip said.
        reason: String,
        /// What to do.
        hint: String,
    },
}

/// Where installed packages are kept.
#[derive(Debug, Clone)]
pub struct PackageCache {
    /// The directory that both are in.
    base: PathBuf,
    /// Whether a variable moved it away from where every run looks.
    moved: bool,
    /// What is installed; Cofferdam's own, which no sandbox writes.
    installed: PathBuf,
    /// What is being installed.
    unfinished: PathBuf,
}

/// Below the base: what is installed.
const INSTALLED: &str = "cofferdam/packages";
/// Below the base: what is being installed.
const UNFINISHED: &str = "cofferdam-packages";

impl PackageCache {
    /// The cache below that of the variable, or below the home; `None` without either.
    pub fn new(cache_home: Option<&str>, home: Option<&str>) -> Option<PackageCache> {
        let base = BaseDirectory::Cache.of(cache_home, home)?;
        let usual = BaseDirectory::Cache.of(None::<&str>, home);
        let is_same = |usual: &PathBuf| *usual == base || same_directory(usual, &base);
        let moved = !usual.is_some_and(|usual| is_same(&usual));
        Some(PackageCache { moved, installed: base.join(INSTALLED), unfinished: base.join(UNFINISHED), base })
    }

    /// Makes a directory below the base that is not there. Where a variable moved it, later runs hide it, and one that something else
    /// made is not used.
    fn take(&self, name: &str) -> Result<(), PackagesError> {
        let path = self.base.join(name);
        let made = match self.moved {
            false => DirBuilder::new().recursive(true).mode(0o700).create(&path),
            true => opened::state_directory()
                .and_then(|state| take(Remembered::Caches, &state, &self.base, name))
                .map(|_| ()),
        };
        made.map_err(|source| PackagesError::Cache { path, source })
    }

    /// Whether what is installed was installed by Cofferdam, for all that is known.
    fn is_own(&self) -> bool {
        let known = || {
            let installed = std::fs::canonicalize(&self.base)?.join(INSTALLED);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat2(CWD, &installed, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
            is_known(Remembered::Caches, &opened::state_directory()?, &opened, &installed)
        };
        !self.moved || known().unwrap_or(false)
    }

    fn entry(&self, packages: &Packages, around: &Surroundings) -> Result<PathBuf, PackagesError> {
        let python = found_python(around.around(), &HostTree)?;
        let mut inputs = Vec::new();
        // Who else could be asked for them decides what they are, as their index does.
        let sources = (packages.index.is_some() || !packages.besides.is_empty()).then(|| {
            let besides = packages.besides.iter().map(|rule| format!(" {}", rule.entry)).collect::<String>();
            format!("{}{besides}", packages.index.as_ref().map(HttpUrl::to_text).unwrap_or_default())
        });
        let version = if sources.is_some() { "2" } else { "1" };
        let names = packages.names.iter().map(String::as_str);
        for part in [version, &python].into_iter().chain(sources.as_deref()).chain(names) {
            inputs.extend_from_slice(&(part.len() as u64).to_be_bytes());
            inputs.extend_from_slice(part.as_bytes());
        }
        Ok(self.installed.join(hex(&sha256(&inputs))))
    }

    /// The virtual environment with these packages, if it was made for the interpreter that is found now.
    pub fn installed(&self, packages: &Packages, around: &Surroundings) -> Option<PathBuf> {
        let entry = self.entry(packages, around).ok().filter(|_| self.is_own())?;
        let about = entry.symlink_metadata().ok()?;
        let own = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
        let venv = entry.join("tree/venv");
        if !own || !venv.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            return None;
        }
        // The code of packages ran while they were installed, and may have had it lead to another installation.
        if !leads_to_this_python(&venv, around.around(), &HostTree) {
            return None;
        }
        show(&venv);
        Some(venv)
    }

    /// Installs the packages, also where they were installed before, and returns the virtual environment.
    ///
    /// # Errors
    /// They cannot be installed.
    pub fn install(
        &self,
        engine: &Engine,
        packages: &Packages,
        around: &Surroundings,
    ) -> Result<PathBuf, PackagesError> {
        let entry = self.entry(packages, around)?;
        self.take(INSTALLED)?;
        self.take(UNFINISHED)?;
        let fresh = Unfinished::new(&self.unfinished)?;
        // Every other sandbox has the directory hidden, also by other names.
        cofferdam_engine::show_own(&fresh.0.join("tree"));
        let outcome = run(engine, packages, around, &fresh.0.join("tree"), &entry.join("tree"))?;
        if !outcome.success {
            return Err(failed(packages, &outcome));
        }
        // What pip left is not the virtual environment that was made, where a package put a link in its place.
        let venv = fresh.0.join("tree/venv/bin");
        if std::fs::canonicalize(&venv).ok().as_ref() != Some(&venv) {
            let reason = "they replaced the virtual environment by a link".to_owned();
            let hint = "do not use these packages".to_owned();
            return Err(PackagesError::Failed { packages: packages.to_string(), reason, hint });
        }
        let cache = |path: &Path| {
            let path = path.to_owned();
            move |source| PackagesError::Cache { path, source }
        };
        if !leads_to_this_python(&fresh.0.join("tree/venv"), around.around(), &HostTree) {
            let reason = "they made the virtual environment lead to another installation of Python".to_owned();
            let hint = "do not use these packages".to_owned();
            return Err(PackagesError::Failed { packages: packages.to_string(), reason, hint });
        }
        // What was installed, for people: nothing reads it.
        if let Some(lock) = lock(&fresh.0.join("tree/report.json")) {
            std::fs::write(fresh.0.join("lock"), lock).map_err(cache(&fresh.0))?;
        }
        // Sandboxes that run with the former one keep it: it goes when the next one is replaced.
        let former = entry.with_extension("former");
        if entry.symlink_metadata().is_ok() {
            match std::fs::remove_dir_all(&former) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cache(&former)(error)),
                _ => std::fs::rename(&entry, &former).map_err(cache(&entry))?,
            }
        }
        std::fs::rename(&fresh.0, &entry).map_err(cache(&entry))?;
        let venv = entry.join("tree/venv");
        show(&venv);
        Ok(venv)
    }
}

fn same_directory(one: &Path, other: &Path) -> bool {
    let about = |path: &Path| std::fs::metadata(path).map(|about| (about.dev(), about.ino()));
    matches!((about(one), about(other)), (Ok(one), Ok(other)) if one == other)
}

/// Lets sandboxes of this process mount a virtual environment.
fn show(venv: &Path) {
    if let Ok(real) = std::fs::canonicalize(venv) {
        cofferdam_engine::show_own(&real);
    }
}

/// A directory that is removed with whatever is in it, unless it was renamed.
struct Unfinished(PathBuf);

impl Unfinished {
    /// A new directory of the caller's own, with an empty `tree`.
    fn new(base: &Path) -> Result<Unfinished, PackagesError> {
        let failed = |source| PackagesError::Cache { path: base.to_owned(), source };
        let mut random = [0u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed(error.into()))?;
        let base = std::fs::canonicalize(base).map_err(failed)?;
        let path = base.join(hex(&random));
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let this = Unfinished(path);
        DirBuilder::new().mode(0o700).create(this.0.join("tree")).map_err(failed)?;
        Ok(this)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It was renamed, or pip has failed, which is reported. What cannot be removed stays in the cache.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Runs pip in a sandbox that writes `source`, which it sees at `target`, where it will be.
fn run(
    engine: &Engine,
    packages: &Packages,
    around: &Surroundings,
    source: &Path,
    target: &Path,
) -> Result<Outcome, PackagesError> {
    let path = |path: &Path| {
        let error = || std::io::Error::other("its path is not UTF-8");
        path.to_str().map(str::to_owned).ok_or_else(|| PackagesError::Cache { path: path.to_owned(), source: error() })
    };
    let (source, target) = (path(source)?, path(target)?);
    let mut policy = eval_base(false, &around.homes);
    let allow = hosts(packages);
    policy.network = Network { mode: NetworkMode::Allowlist, allow, ..Network::none() };
    policy.require(Field::Network);
    policy.go_by_hosts_proxy(|name| around.variables.get(name).cloned());
    policy.limits.wall_ms = TIMEOUT_MS;
    policy.limits.cpu_seconds = policy.limits.cpu_seconds.max(TIMEOUT_MS / 1000);
    let temporary = format!("{target}/tmp");
    for name in ["HOME", "TMPDIR"] {
        policy.command.variables.insert(name.into(), temporary.clone());
    }
    policy.command.cwd = Some(target.clone());
    let index = packages.index.as_ref().map(HttpUrl::to_text).unwrap_or_default();
    let arguments: Vec<String> = [target.clone(), index].into_iter().chain(packages.names.iter().cloned()).collect();
    let code = CodeSource::Text(INSTALL.to_owned());
    preset(&mut policy, around.around(), &HostTree, "python", code, &arguments)?;
    policy.filesystem.mounts.push(Mount::Bind {
        source,
        target,
        access: Access::ReadWrite,
        exec: true,
        optional: false,
    });
    let refused = |message: String, hint: Option<String>| PackagesError::Sandbox {
        packages: packages.to_string(),
        message,
        hint,
    };
    policy.validate().map_err(|errors| refused(errors.to_string(), None))?;
    let prepared = engine.prepare(&policy).map_err(|failure| refused(failure.message, failure.hint))?;
    let outcome = prepared.run(Io::default());
    match &outcome.error {
        Some(failure) => Err(refused(failure.message.clone(), failure.hint.clone())),
        None => Ok(outcome),
    }
}

impl fmt::Display for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names.iter().map(|name| text::one_line(name)).collect();
        f.write_str(&names.join(", "))
    }
}

/// What `index` may be.
pub(super) const INDEX_ACCEPTED: &str = "the URL of another host's index, as in \"https://pypi.example.org/simple\"";

/// What is reached while packages are installed: their index, and what the operator named besides.
fn hosts(packages: &Packages) -> Vec<AllowRule> {
    let index =
        packages.index.as_ref().map_or_else(|| allow_rules(PYPI).unwrap_or_default(), |index| vec![rule_of(index)]);
    index.into_iter().chain(packages.besides.iter().cloned()).collect()
}

/// The rule of an index. An operator who names one means it wherever it is, which is often a private network.
fn rule_of(index: &HttpUrl) -> AllowRule {
    let to = match &index.host {
        UrlHost::Name(name) => To::Host { name: name.clone() },
        UrlHost::Address(address) => To::Net { address: *address, prefix: if address.is_ipv4() { 32 } else { 128 } },
    };
    let private = matches!(to, To::Host { .. });
    let ports = Ports::from_ranges([(index.port, index.port)]);
    AllowRule { private, ..AllowRule::from(AllowEntry { to, ports }) }
}

/// Why no package can be installed from an index there, and what is accepted; none where one can.
pub(super) fn index_fault(index: &HttpUrl) -> Option<(String, &'static str)> {
    if index.credentials.is_some() {
        let problem = "a password there could be read by the packages, whose code runs while they are installed";
        return Some((problem.to_owned(), "a URL without one"));
    }
    let fault = match &index.host {
        UrlHost::Address(address) => not_offered(*address),
        UrlHost::Name(name) if is_this_machine(name) => {
            Some(format!("{name} is this machine, whose own services no sandbox reaches"))
        }
        UrlHost::Name(name) => not_offered_name(name),
    };
    fault.map(|fault| (fault, INDEX_ACCEPTED))
}

/// Why pip failed: a host that was refused, or the last of its own errors.
fn failed(packages: &Packages, outcome: &Outcome) -> PackagesError {
    let index = packages.index.as_ref().map_or_else(|| PYPI.to_owned(), ToString::to_string);
    let packages = packages.to_string();
    let refused = outcome.network.iter().flat_map(|network| &network.events);
    let refused = refused.filter(|event| event.kind == NetworkKind::Refused).find_map(|event| {
        let host = text::one_line(event.host.as_deref()?);
        let besides = format!("allow_private = [\"{host}\"] beside `packages` reaches it as well");
        Some(match event.detail.as_deref() {
            Some(detail) if event.reason == Some(NetworkReason::AddressNotPublic) => {
                format!("{host} was refused: {}; {besides}", text::one_line(detail))
            }
            Some(detail) => format!("{host} was refused: {}", text::one_line(detail)),
            None => {
                format!("only {index} is reached while packages are installed, and {host} is another host; {besides}")
            }
        })
    });
    let said: Vec<String> = outcome.stderr.lines().filter(|line| !line.trim().is_empty()).map(text::one_line).collect();
    let errors: Vec<&String> = said.iter().filter(|line| line.starts_with("ERROR")).collect();
    let last = if errors.is_empty() { said.iter().rev().take(1).collect() } else { errors };
    let last: Vec<&str> = last.into_iter().take(MOST_LINES).map(String::as_str).collect();
    let hint = if let Some(refused) = refused {
        refused
    } else if let Some(limit) = outcome.limit {
        format!("it was ended by {limit}")
    } else {
        format!("check the names and versions; they are installed from {index}")
    };
    let reason = if last.is_empty() { "pip printed nothing".to_owned() } else { last.join("; ") };
    PackagesError::Failed { packages, reason, hint }
}

/// What was installed, a line each with its version and hash, by pip's report, which untrusted code may have written.
fn lock(report: &Path) -> Option<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(report).ok()?;
    let mut bytes = Vec::new();
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(LONGEST_REPORT).read_to_end(&mut bytes).ok()?;
    let report: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let mut lines = Vec::new();
    for one in report["install"].as_array()? {
        let field = |name: &str| one["metadata"][name].as_str().map(text::one_line);
        let hash = one["download_info"]["archive_info"]["hashes"]["sha256"].as_str().map(text::one_line);
        let hash = hash.map(|hash| format!(" --hash=sha256:{hash}")).unwrap_or_default();
        writeln!(&mut lines, "{}=={}{hash}", field("name")?, field("version")?).ok()?;
    }
    String::from_utf8(lines).ok()
}

/// Whether a text names a package of the index, perhaps with extras and versions: no option of pip, no path, no address.
pub(super) fn is_package(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " ._-[],<>=!~*+".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 200 && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_no_option_path_or_address() {
        for good in ["pandas", "pandas==2.2.3", "uvicorn[standard] >=0.30,<1", "ruamel.yaml", "numpy~=2.0", "a!=1.*"] {
            assert!(is_package(good), "{good}");
        }
        for bad in [
            "",
            "-r /etc/passwd",
            "--index-url=https://x",
            "./local",
            "/etc",
            "git+https://example.org/x",
            "x @ https://example.org/x.whl",
            "x; os_name == 'posix'",
            "a\nb",
            "../x",
            "file:x",
        ] {
            assert!(!is_package(bad), "{bad}");
        }
    }

    #[test]
    fn packages_where_a_variable_led_are_used_if_cofferdam_made_their_place() {
        let directory = tempfile::tempdir().unwrap();
        let (home, disk) = (directory.path().join("home"), directory.path().join("disk"));
        for base in [&home.join(".cache"), &disk] {
            std::fs::create_dir_all(base.join(INSTALLED)).unwrap();
        }
        let cache = |base: Option<&Path>| PackageCache::new(base.and_then(Path::to_str), home.to_str()).unwrap();
        let planted = cache(Some(&disk));
        assert!(!planted.is_own());
        let why = planted.take(INSTALLED).unwrap_err().to_string();
        assert!(why.contains("was not made by Cofferdam") && why.contains("hint: remove it"), "{why}");
        // In the usual place, also where the variable names it.
        std::os::unix::fs::symlink(home.join(".cache"), directory.path().join("named")).unwrap();
        for base in [None, Some(home.join(".cache")), Some(directory.path().join("named"))] {
            let usual = cache(base.as_deref());
            assert!(usual.is_own() && usual.take(INSTALLED).is_ok(), "{base:?}");
        }
    }

    #[test]
    fn a_report_becomes_lines_and_an_odd_one_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        assert_eq!(lock(&file), None, "there is none");
        std::fs::write(
            &file,
            r#"{"install": [{"metadata": {"name": "six", "version": "1.16.0"}, "download_info": {"archive_info":
            {"hashes": {"sha256": "8abb"}}}}, {"metadata": {"name": "x\ny", "version": "1"}, "download_info": {}}]}"#,
        )
        .unwrap();
        assert_eq!(lock(&file).unwrap(), "six==1.16.0 --hash=sha256:8abb\nx\\ny==1\n");
        std::fs::write(&file, "[").unwrap();
        assert_eq!(lock(&file), None);
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
        assert_eq!(lock(&file), None, "a link is not followed");
    }
}

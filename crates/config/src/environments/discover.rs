//! Finds the real interpreter of a name: through PATH, pyenv and nodenv shims, asdf, venvs and symlinks.
//!
//! Nothing is run or cached. The file system is accessed through a `DiscoveryFiles`, so that tests can use a fake one. The result
//! is a program, and the paths that must be mounted for it.
//!
//! Links, `pyvenv.cfg`, version files and shims may be written by sandboxed code or come with a repository. They determine where to
//! look, but not what may be mounted: each directory is checked and mounted by its canonical path.

use std::path::{Path, PathBuf};

use super::InterpreterSurroundings;

/// The file system operations that discovery needs.
pub trait DiscoveryFiles {
    /// The first bytes of a regular file that may be executed; `None` for anything else. Follows symlinks.
    fn executable(&self, path: &Path) -> Option<Vec<u8>>;
    /// The first bytes of a regular file as text. Follows symlinks.
    fn text(&self, path: &Path) -> Option<String>;
    /// The target of a symlink, as it is written.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Names in a directory.
    fn list(&self, path: &Path) -> Vec<String>;
    /// The canonical path, without symlinks; `None` if the path does not exist.
    fn canonical(&self, path: &Path) -> Option<PathBuf>;
}

/// The host's file system.
pub struct HostTree;

/// Most bytes of a file that discovery reads.
const HEAD: u64 = 4096;

fn head(path: &Path) -> Option<(std::fs::Metadata, Vec<u8>)> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Non-blocking, because another process may create a FIFO there at any moment.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(HEAD).read_to_end(&mut bytes).ok()?;
    Some((metadata, bytes))
}

impl DiscoveryFiles for HostTree {
    fn executable(&self, path: &Path) -> Option<Vec<u8>> {
        use std::os::unix::fs::PermissionsExt as _;
        let (metadata, bytes) = head(path)?;
        (metadata.permissions().mode() & 0o111 != 0).then_some(bytes)
    }

    fn text(&self, path: &Path) -> Option<String> {
        String::from_utf8(head(path)?.1).ok()
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect()
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        std::fs::canonicalize(path).ok()
    }
}

/// The interpreter that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedInterpreter {
    /// Program names, best first.
    pub names: &'static [&'static str],
    /// Prefixes of the real program's name, unlike that of a shim that links to its manager's binary.
    pub stems: &'static [&'static str],
    /// The tool's name in asdf.
    pub asdf: &'static str,
    /// The variable with the version for pyenv and its kin, without `_VERSION` and `_ROOT`.
    pub env_prefix: &'static str,
    /// Files that identify an installation of this interpreter, below `lib/NAME*` of a prefix or below the prefix itself.
    pub proof: &'static [&'static str],
}

/// A found interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// Absolute path to start; a venv's own path, so that the interpreter finds the venv.
    pub program: String,
    /// Directories and files outside the system's that must be mounted.
    pub needs: Vec<Need>,
}

/// A directory or file that an interpreter needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its canonical path on the host, which was checked.
    pub source: String,
    /// The path by which the interpreter reaches it.
    pub target: String,
}

/// Directories that the minimal root contains anyway.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives"];

/// System directories that are never an installation, whatever they contain.
const SHARED: &[&str] = &[
    "/boot",
    "/dev",
    "/etc",
    "/gnu",
    "/home",
    "/media",
    "/mnt",
    "/nix",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/tmp",
    "/usr/local",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/local",
    "/var/log",
    "/var/opt",
    "/var/spool",
    "/var/tmp",
];

/// Directories that contain no installation.
const NOT_FOR_PROGRAMS: &[&str] = &["/boot", "/dev", "/etc", "/proc", "/run", "/sys"];

/// Stores whose programs depend on each other: mounted as a whole.
const STORES: &[&str] = &["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"];

/// Looks along the caller's PATH for the first name that leads to a real interpreter.
pub fn discover(
    tree: &dyn DiscoveryFiles,
    caller: InterpreterSurroundings<'_>,
    wanted: &WantedInterpreter,
) -> Option<Interpreter> {
    let venv = caller.venv.map(|venv| format!("{venv}/bin"));
    let path = venv.as_deref().or_else(|| caller.variable("PATH")).unwrap_or("/usr/local/bin:/usr/bin:/bin");
    for name in wanted.names {
        // A relative entry would find programs in a directory that the caller did not name.
        for directory in path.split(':').filter(|d| d.starts_with('/') && !d.split('/').any(|part| part == "..")) {
            let candidate = Path::new(directory).join(name);
            let Some(head) = tree.executable(&candidate) else { continue };
            let real = match is_elf(&head) {
                true => Some(candidate),
                false => behind_shim(tree, caller, wanted, name, &candidate, &head),
            };
            if let Some(found) = real.and_then(|program| interpreter(tree, caller, wanted, &program)) {
                return Some(found);
            }
        }
    }
    None
}

fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

/// The program that a version manager's shim would start here.
fn behind_shim(
    tree: &dyn DiscoveryFiles,
    caller: InterpreterSurroundings<'_>,
    wanted: &WantedInterpreter,
    name: &str,
    shim: &Path,
    head: &[u8],
) -> Option<PathBuf> {
    let text = std::str::from_utf8(head).ok()?;
    let exists = |path: PathBuf| tree.executable(&path).filter(|h| is_elf(h)).map(|_| path);
    if text.contains("asdf exec") {
        let root = match caller.variable("ASDF_DATA_DIR") {
            Some(root) => PathBuf::from(root),
            None => shim.parent()?.parent()?.to_owned(),
        };
        let installs = root.join("installs").join(wanted.asdf);
        let line = format!("{} ", wanted.asdf);
        let from_file = |text: String| text.lines().find_map(|l| Some(l.strip_prefix(&line)?.trim().to_owned()));
        let versions = caller
            .variable(&format!("ASDF_{}_VERSION", wanted.asdf.to_uppercase()))
            .map(String::from)
            .or_else(|| up_the_tree(tree, caller.cwd, ".tool-versions").find_map(&from_file))
            .or_else(|| {
                caller.homes.iter().find_map(|h| from_file(tree.text(&Path::new(h).join(".tool-versions"))?))
            })?;
        return versions
            .split_whitespace()
            .filter(|v| is_plain_name(v))
            .find_map(|v| exists(installs.join(v).join("bin").join(name)));
    }
    if wanted.env_prefix.is_empty() || !text.contains(&wanted.env_prefix.to_lowercase()) {
        return None;
    }
    let root_name = format!("{}_ROOT", wanted.env_prefix);
    let root = caller
        .variable(&root_name)
        .map(String::from)
        .or_else(|| Some(text.split_once(&format!("{root_name}=\""))?.1.split_once('"')?.0.to_owned()))?;
    let root = PathBuf::from(root);
    let dot_file = if wanted.env_prefix == "PYENV" { ".python-version" } else { ".node-version" };
    let versions = caller
        .variable(&format!("{}_VERSION", wanted.env_prefix))
        .map(|v| v.replace(':', "\n"))
        .or_else(|| up_the_tree(tree, caller.cwd, dot_file).next())
        .or_else(|| tree.text(&root.join("version")))?;
    // `system` and a missing version continue with the next entry of PATH, as the shim does for `system`.
    versions.lines().map(str::trim).filter(|v| is_plain_name(v)).find_map(|version| {
        let version = version.strip_prefix("python-").unwrap_or(version);
        let all = root.join("versions");
        exists(all.join(version).join("bin").join(name))
            .or_else(|| exists(all.join(newest(&tree.list(&all), version)?).join("bin").join(name)))
    })
}

/// Whether a version is a plain name and not a path: it comes from a file that other users may be able to write.
fn is_plain_name(version: &str) -> bool {
    !version.is_empty() && !version.starts_with(['#', '.', '/']) && !version.split('/').any(|part| part == "..")
}

fn up_the_tree<'t>(tree: &'t dyn DiscoveryFiles, cwd: &'t str, name: &'t str) -> impl Iterator<Item = String> + 't {
    Path::new(cwd).ancestors().filter_map(move |directory| tree.text(&directory.join(name)))
}

/// The newest installed version that `prefix` abbreviates: `3.11` is the highest `3.11.N`.
fn newest(installed: &[String], prefix: &str) -> Option<String> {
    let key = |v: &str| v.split('.').map(|n| n.parse::<u32>().ok()).collect::<Option<Vec<_>>>();
    let start = format!("{prefix}.");
    installed.iter().filter(|v| v.starts_with(&start)).filter_map(|v| Some((key(v)?, v))).max().map(|(_, v)| v.clone())
}

/// Follows the program's symlinks and collects what each hop needs.
fn interpreter(
    tree: &dyn DiscoveryFiles,
    caller: InterpreterSurroundings<'_>,
    wanted: &WantedInterpreter,
    program: &Path,
) -> Option<Interpreter> {
    let mut needs: Vec<Need> = Vec::new();
    let mut need = |source: &Path, target: &Path| {
        if let (Some(source), Some(target)) = (source.to_str(), target.to_str())
            && !needs.iter().any(|n| Path::new(target).starts_with(&n.target))
        {
            needs.retain(|n| !Path::new(&n.target).starts_with(target));
            needs.push(Need { source: source.to_owned(), target: target.to_owned() });
        }
    };
    let credentials = super::credentials::credentials_elsewhere(caller.homes);
    let own = |prefix: &Path| installation(tree, caller, &credentials, wanted, prefix);
    // Variables and files spell paths in any way (`//opt/py/bin`), and a policy takes one spelling. One that no policy takes
    // names no program that can be mounted.
    let program: PathBuf = program.components().collect();
    if !program.is_absolute() || cofferdam_policy::paths::fault(program.to_str()?).is_some() {
        return None;
    }
    let mut hop = program.clone();
    let mut venv: Option<PathBuf> = None;
    for _ in 0..40 {
        let prefix = hop.parent().and_then(Path::parent);
        let store = STORES.iter().map(Path::new).find(|store| hop.starts_with(store));
        if let Some((store, real)) = store.and_then(|s| Some((s, tree.canonical(s)?)))
            && !contains_more(caller, &credentials, &real)
        {
            need(&real, store);
        } else if !is_system(&hop) {
            // A link in a venv leads to the installation that it was made of, and to no other venv.
            let leads_on =
                |real: &Path| venv.as_deref().is_none_or(|venv| venv == real) || has_library(tree, wanted, real);
            match prefix.and_then(|p| Some((p, own(p).filter(|real| leads_on(real))?))) {
                Some((prefix, real)) => {
                    need(&real, prefix);
                    venv = venv.or_else(|| (!has_library(tree, wanted, &real)).then_some(real));
                }
                // Only the program itself, which a link may lead to.
                None => {
                    let real = tree.canonical(&hop)?;
                    let denied = credentials.iter().any(|denied| real.starts_with(denied));
                    let device = |path: &Path| ["/dev", "/proc", "/sys"].iter().any(|own| path.starts_with(own));
                    tree.executable(&real).filter(|head| is_elf(head) && !denied && !device(&real) && !device(&hop))?;
                    need(&real, &hop);
                }
            }
        }
        // A venv names the installation that has its library, which no other venv has.
        if let Some(home) = prefix.and_then(|p| tree.text(&p.join("pyvenv.cfg"))).and_then(|t| venv_home(&t)) {
            let base = home.parent().unwrap_or(&home);
            if !is_system(&home)
                && let Some(real) = own(base).filter(|real| has_library(tree, wanted, real))
            {
                need(&real, base);
            }
        }
        match real_hop(tree, &hop) {
            Some(next) => hop = next,
            None => {
                let name = hop.file_name()?.to_str()?;
                let is_wanted = wanted.stems.iter().any(|stem| name.starts_with(stem));
                let program = program.to_str().filter(|_| is_wanted)?.to_owned();
                return Some(Interpreter { program, needs });
            }
        }
    }
    None
}

/// The path with its first symlink replaced by its target; `None` if it has no symlink. Directories of the path may be links as
/// well: `~/.nvm/current/bin/node`, `/opt/python/bin/python3`.
fn real_hop(tree: &dyn DiscoveryFiles, path: &Path) -> Option<PathBuf> {
    let mut walked = PathBuf::from("/");
    let mut rest = path.strip_prefix("/").ok()?.components();
    while let Some(component) = rest.next() {
        let here = walked.join(component);
        if let Some(target) = tree.link(&here) {
            let mut next = if target.is_absolute() { PathBuf::from("/") } else { walked };
            for part in target.components().chain(rest) {
                match part {
                    std::path::Component::ParentDir => {
                        next.pop();
                    }
                    std::path::Component::Normal(name) => next.push(name),
                    _ => {}
                }
            }
            return Some(next);
        }
        walked = here;
    }
    None
}

fn venv_home(config: &str) -> Option<PathBuf> {
    let value = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| value.trim())
    })?;
    // A path with `..` is not followed: here it would be resolved lexically, and by the kernel through links.
    let plain = value.starts_with('/') && !value.split('/').any(|part| part == "..");
    plain.then(|| Path::new(value).components().collect())
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|s| path.starts_with(s))
}

/// The canonical path of a directory that is an installation of the interpreter and contains nothing else. Its name does not
/// matter, since a link in a project may lead anywhere.
fn installation(
    tree: &dyn DiscoveryFiles,
    caller: InterpreterSurroundings<'_>,
    credentials: &[String],
    wanted: &WantedInterpreter,
    prefix: &Path,
) -> Option<PathBuf> {
    let real = tree.canonical(prefix)?;
    if contains_more(caller, credentials, &real) {
        return None;
    }
    let is_own = tree.text(&real.join("pyvenv.cfg")).is_some() || has_library(tree, wanted, &real);
    is_own.then_some(real)
}

/// Whether a directory has the interpreter's own library.
fn has_library(tree: &dyn DiscoveryFiles, wanted: &WantedInterpreter, prefix: &Path) -> bool {
    let proven = |base: &Path| wanted.proof.iter().any(|proof| tree.text(&base.join(proof)).is_some());
    let lib = prefix.join("lib");
    let own = |name: &&String| wanted.stems.iter().any(|stem| name.starts_with(stem));
    proven(prefix) || tree.list(&lib).iter().filter(own).any(|name| proven(&lib.join(name)))
}

/// Whether a canonical directory contains more than an installation may: `/` and the usual system directories, homes and their
/// ancestors, and directories that contain credentials or lie in a directory of credentials.
pub(super) fn contains_more(caller: InterpreterSurroundings<'_>, credentials: &[String], real: &Path) -> bool {
    let home = |home: &String| Path::new(home).starts_with(real);
    let credential = |denied: &String| Path::new(denied).starts_with(real) || real.starts_with(denied);
    real.parent().is_none()
        || SHARED.iter().any(|shared| Path::new(shared).starts_with(real))
        || NOT_FOR_PROGRAMS.iter().any(|shared| real.starts_with(shared))
        // The direct children of /home are homes, of any user.
        || real.parent() == Some(Path::new("/home"))
        || caller.homes.iter().any(home)
        || caller.homes.iter().any(|home| real == Path::new(home).join(".config"))
        || credentials.iter().any(credential)
}

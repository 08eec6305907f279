//! The built-in lists of what is never read: credentials, and the names of a home that begin with a dot.
//!
//! One source for every backend and every front end. How the lists are enforced is decided elsewhere.

use crate::BaseDirectory;

use crate::paths::{is_within, normalize};

/// A place in which an application keeps credentials, a history or private data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// Relative to the user's home, or absolute.
    pub path: &'static str,
    /// The names of [`Credential::variables`], with commas.
    variables: &'static str,
    /// The application.
    pub application: &'static str,
    /// Where that is documented.
    pub source: &'static str,
}

/// `credentials.txt`, which the compiler reads: each process has the list without parsing it.
const CREDENTIALS_TEXT: &str = include_str!("credentials.txt");

/// Every place of credentials, as `credentials.txt` lists them. `.npmrc` and `.pypirc` are in: they hold registry tokens,
/// and code that needs a registry gets it by policy.
pub static CREDENTIALS: &[Credential] = &parse_credentials::<{ count_credentials() }>();

/// A text up to a byte, and what follows that.
const fn split_once(text: &'static str, at: u8) -> (&'static str, &'static str) {
    let mut end = 0;
    while end < text.len() {
        if text.as_bytes()[end] == at {
            let (before, rest) = text.split_at(end);
            return (before, rest.split_at(1).1);
        }
        end += 1;
    }
    (text, "")
}

/// Whether a line of the list is an entry.
const fn is_entry(line: &str) -> bool {
    !line.is_empty() && line.as_bytes()[0] != b'#'
}

const fn count_credentials() -> usize {
    let (mut rest, mut count) = (CREDENTIALS_TEXT, 0);
    while !rest.is_empty() {
        let (line, after) = split_once(rest, b'\n');
        if is_entry(line) {
            count += 1;
        }
        rest = after;
    }
    count
}

const fn parse_credentials<const COUNT: usize>() -> [Credential; COUNT] {
    let mut entries = [Credential { path: "", variables: "", application: "", source: "" }; COUNT];
    let (mut rest, mut count) = (CREDENTIALS_TEXT, 0);
    while !rest.is_empty() {
        let (line, after) = split_once(rest, b'\n');
        if is_entry(line) {
            let (path, fields) = split_once(line, b'|');
            let (variables, fields) = split_once(fields, b'|');
            let (application, source) = split_once(fields, b'|');
            entries[count] = Credential {
                path: path.trim_ascii(),
                variables: variables.trim_ascii(),
                application: application.trim_ascii(),
                source: source.trim_ascii(),
            };
            count += 1;
        }
        rest = after;
    }
    entries
}

/// What an installation has of [`CREDENTIALS`] itself: denied in it, and no reason not to show it.
const OF_INSTALLATIONS: &[&str] = &["etc/npmrc", "pip.conf", ".condarc", "condarc", "condarc.d"];

impl Credential {
    /// Variables that name the place instead; `NAME/REST` names the directory that has REST in it.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.variables.split(',').filter(|name| !name.is_empty())
    }

    /// Whether it is a file of an installation of an interpreter, such as a virtual environment.
    pub fn is_of_an_installation(&self) -> bool {
        OF_INSTALLATIONS.iter().any(|name| self.path.strip_suffix(name).is_some_and(|above| above.ends_with('/')))
    }
}

/// Adds a path with `*` in the place of names: one for each name that `list` says the directory has.
fn add_each(path: String, list: &dyn Fn(&str) -> Vec<String>, found: &mut Vec<String>) {
    let Some((base, rest)) = path.split_once("/*") else { return found.push(path) };
    for name in list(base) {
        add_each(format!("{base}/{name}{rest}"), list, found);
    }
}

/// What `~`, `~/REST` or `~USER/REST` may mean for a program that replaces it.
fn in_homes(value: &str, homes: &[String]) -> Vec<String> {
    let Some(below) = value.strip_prefix('~') else { return Vec::new() };
    let (user, rest) = below.split_once('/').unwrap_or((below, ""));
    let of_the_user = |home: &&String| user.is_empty() || home.rsplit('/').next() == Some(user);
    homes.iter().filter(of_the_user).map(|home| format!("{home}/{rest}")).collect()
}

/// [`CREDENTIALS`] as absolute paths for a user whose home is `home` (absolute, normalized). `list` says which names a
/// directory has.
pub fn credential_deny(home: &str, list: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let home = home.strip_suffix('/').unwrap_or(home);
    let mut denied = Vec::with_capacity(CREDENTIALS.len());
    for entry in CREDENTIALS {
        let path = match entry.path.starts_with('/') {
            true => entry.path.to_owned(),
            false => [home, "/", entry.path].concat(),
        };
        add_each(path, list, &mut denied);
    }
    denied
}

/// Where the caller's variables put credentials instead; a relative value is one below `cwd`, as programs take it, and one that
/// begins with `~` also one in a home of the caller's, since some programs replace that. Values that lead above `/`, and `/`
/// itself, are left out.
pub fn credential_deny_moved<'v>(
    cwd: &str,
    homes: &[String],
    variable: impl Fn(&str) -> Option<&'v str>,
    list: &dyn Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let mut moved = Vec::new();
    let mut add = |value: &str, rest: &str| {
        for place in value.split(':').filter(|place| !place.is_empty()) {
            let literal = match place.starts_with('/') {
                true => format!("{place}/{rest}"),
                false => format!("{cwd}/{place}/{rest}"),
            };
            let in_homes = in_homes(place, homes).into_iter().map(|place| format!("{place}/{rest}"));
            let places = [literal].into_iter().chain(in_homes).filter_map(|place| normalize(&place));
            places.filter(|place| place != "/").for_each(|place| add_each(place, list, &mut moved));
        }
    };
    let base_directories: Vec<(&str, &str)> =
        BaseDirectory::ALL.iter().filter_map(|of| Some((of.usual(), variable(of.variable())?))).collect();
    for entry in CREDENTIALS {
        for name in entry.variables() {
            let (name, rest) = name.split_once('/').unwrap_or((name, ""));
            if let Some(value) = variable(name) {
                add(value, rest);
            }
        }
        for (directory, value) in &base_directories {
            if let Some(rest) = entry.path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')) {
                add(value, rest);
            }
        }
    }
    moved.sort_unstable();
    moved.dedup();
    moved
}

/// What of a home's names that begin with a dot the `host` root view shows: what programs are started from or need to
/// start, and caches. Relative to the home; everything below an entry is shown but what [`CREDENTIALS`] lists.
pub(crate) const SHOWN_DEFAULT: &[&str] = &[
    // Toolchains and version managers.
    ".asdf",
    ".bun",
    ".cabal",
    ".cargo",
    ".conda",
    ".deno",
    ".dotnet",
    ".elan",
    ".fnm",
    ".gem",
    ".ghcup",
    ".goenv",
    ".jenv",
    ".juliaup",
    ".luarocks",
    ".mix",
    ".nix-profile",
    ".nodenv",
    ".nvm",
    ".opam",
    ".poetry",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".rye",
    ".sdkman",
    ".volta",
    // Programs and libraries that a user installed.
    ".local/bin",
    ".local/include",
    ".local/lib",
    ".local/lib64",
    ".local/libexec",
    ".local/opt",
    ".local/pipx",
    ".local/share/bash-completion",
    ".local/share/fnm",
    ".local/share/fonts",
    ".local/share/man",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".local/share/virtualenvs",
    ".npm-global",
    ".npm-packages",
    ".venv",
    ".venvs",
    ".virtualenvs",
    ".yarn",
    // Caches.
    ".cache/bun",
    ".cache/ccache",
    ".cache/deno",
    ".cache/electron",
    ".cache/fontconfig",
    ".cache/go-build",
    ".cache/huggingface",
    ".cache/matplotlib",
    ".cache/ms-playwright",
    ".cache/node",
    ".cache/node-gyp",
    ".cache/pip",
    ".cache/pnpm",
    ".cache/pre-commit",
    ".cache/puppeteer",
    ".cache/pypoetry",
    ".cache/sccache",
    ".cache/torch",
    ".cache/uv",
    ".cache/yarn",
    ".cache/zig",
    ".npm",
    ".pnpm-store",
    // What programs read without a secret in it.
    ".clang-format",
    ".clang-tidy",
    ".config/fontconfig",
    ".config/git",
    ".editorconfig",
    ".fonts",
    ".node-version",
    ".nvmrc",
    ".python-version",
    ".ruby-version",
    ".terminfo",
    ".tool-versions",
];

/// The dot names of a home that the `host` root view denies: all but [`SHOWN_DEFAULT`] and what leads to `opened`, paths that
/// the caller works in or named. `list` says which names a directory has that are no symbolic links: what a link leads to is
/// judged where it lies. `base` is where the home's `directory` lies, a home itself with an empty one.
pub fn dot_deny(list: &dyn Fn(&str) -> Vec<String>, base: &str, directory: &str, opened: &[String]) -> Vec<String> {
    let mut denied = Vec::new();
    for name in list(base) {
        if directory.is_empty() && !name.starts_with('.') {
            continue;
        }
        let path = format!("{base}/{name}");
        let relative = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        let opens = |open: &&str| is_within(open, &relative);
        if SHOWN_DEFAULT.iter().any(|shown| is_within(&relative, shown)) || opened.contains(&path) {
            continue;
        }
        if SHOWN_DEFAULT.iter().any(opens) || opened.iter().any(|open| is_within(open, &path)) {
            denied.extend(dot_deny(list, &path, &relative, opened));
        } else {
            denied.push(path);
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{PathSet, fault};

    #[test]
    fn the_lists_are_normalized_and_say_nothing_twice() {
        let credentials: Vec<&str> = CREDENTIALS.iter().map(|entry| entry.path).collect();
        for list in [SHOWN_DEFAULT, &credentials] {
            let set: PathSet = list.iter().copied().collect();
            assert_eq!(set.len(), list.len());
            assert_eq!(set.outermost(), set);
            assert!(list.iter().all(|entry| fault(entry).is_none()));
        }
        assert!(SHOWN_DEFAULT.iter().all(|entry| entry.starts_with('.')));
        let lines = include_str!("credentials.txt").lines();
        let entries = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(CREDENTIALS.len(), entries, "every line is an entry");
        for entry in CREDENTIALS.iter() {
            assert!(!entry.application.is_empty() && !entry.source.is_empty(), "{entry:?}");
            let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(entry.variables().all(|name| name.split('/').next().unwrap().chars().all(of_a_name)), "{entry:?}");
        }
    }

    #[test]
    fn variables_move_credentials() {
        let variable = |name: &str| match name {
            "KUBECONFIG" => Some("/a/one:/b/two:relative::./below/it"),
            "CARGO_HOME" => Some("/cargo"),
            "XDG_CONFIG_HOME" => Some("/x/config"),
            "NVM_DIR" => Some("/x/nvm"),
            "DOCKER_CONFIG" => Some("/"),
            "GNUPGHOME" => Some("/g/../keys/"),
            "PIP_CONFIG_FILE" => Some("~/keys/pip"),
            "HF_HOME" => Some("~u/models"),
            "AZURE_CONFIG_DIR" => Some("~other/azure"),
            "PGPASSFILE" => Some("~"),
            "KRB5CCNAME" => Some("FILE:/tickets/cache"),
            "KRB5_CLIENT_KTNAME" => Some("/tickets/keytab"),
            "RESTIC_PASSWORD_FILE" => Some("/keys/restic"),
            _ => None,
        };
        let list =
            |dir: &str| if dir == "/x/nvm/versions/node" { vec!["v1".to_owned(), "v2".to_owned()] } else { Vec::new() };
        let moved = credential_deny_moved("/cwd", &["/home/u".to_owned()], variable, &list);
        for path in [
            "/a/one",
            "/b/two",
            "/cwd/relative",
            "/cwd/below/it",
            "/cargo/credentials.toml",
            "/x/config/gh",
            "/keys",
            "/x/nvm/versions/node/v2/etc/npmrc",
            "/cwd/~/keys/pip",
            "/home/u/keys/pip",
            "/home/u/models/token",
            "/cwd/~other/azure",
            "/home/u",
            "/tickets/cache",
            "/tickets/keytab",
            "/keys/restic",
        ] {
            assert!(moved.iter().any(|moved| moved == path), "{path}: {moved:?}");
        }
        assert!(!moved.iter().any(|path| path == "/home/u/azure"), "{moved:?}");
        assert!(!moved.iter().any(|path| path == "/" || path == "/cwd" || !path.starts_with('/')), "{moved:?}");
    }

    #[test]
    fn dot_names_are_denied_except_needed_and_opened_ones() {
        let list = |dir: &str| -> Vec<String> {
            let names: &[&str] = match dir {
                "/h" => &["plain", ".secret", ".cargo", ".config", ".dots"],
                "/h/.config" => &["git", "app"],
                "/h/.dots" => &["work", "other"],
                _ => panic!("{dir} need not be listed"),
            };
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(dot_deny(&list, "/h", "", &[]), ["/h/.secret", "/h/.config/app", "/h/.dots"]);
        let opened = ["/h/.dots/work".to_owned(), "/h".to_owned()];
        assert_eq!(dot_deny(&list, "/h", "", &opened), ["/h/.secret", "/h/.config/app", "/h/.dots/other"]);
    }

    #[test]
    fn credentials_are_found_in_any_home() {
        let list = |dir: &str| match dir {
            "/home/u/.nvm/versions/node" => vec!["v20".to_owned()],
            "/home/u/.pyenv/versions" => vec!["3.11".to_owned()],
            "/home/u/.pyenv/versions/3.11/envs" => vec!["one".to_owned()],
            _ => Vec::new(),
        };
        let denied = credential_deny("/home/u", &list);
        for path in [
            "/home/u/.ssh",
            "/etc/shadow",
            "/home/u/.nvm/versions/node/v20/etc/npmrc",
            "/home/u/.pyenv/versions/3.11/pip.conf",
            "/home/u/.pyenv/versions/3.11/envs/one/pip.conf",
        ] {
            assert!(denied.iter().any(|denied| denied == path), "{path}");
        }
        assert!(!denied.iter().any(|path| path.contains('*')), "{denied:?}");
        assert!(credential_deny("/", &|_| Vec::new()).iter().any(|path| path == "/.ssh"));
    }
}

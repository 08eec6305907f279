//! Interpreter discovery on file trees in memory: what each version manager's layout leads to, and what is never shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam::call::preset::{self, CodeSource};
use cofferdam::caller::Caller;
use cofferdam::discover::DiscoveryFiles;
use cofferdam_policy::{Mount, Policy, Stdin};

enum Entry {
    Program(&'static str),
    Text(&'static str),
    Link(&'static str),
}

/// A tree in memory.
#[derive(Default)]
struct Entries(BTreeMap<PathBuf, Entry>);

const ELF: &str = "\x7fELF…";
const PYENV_SHIM: &str =
    "#!/usr/bin/env bash\nexport PYENV_ROOT=\"/home/u/.pyenv\"\nexec \"/home/u/.pyenv/libexec/pyenv\" exec\n";

impl Entries {
    fn program(mut self, path: &str) -> Entries {
        self.0.insert(path.into(), Entry::Program(ELF));
        self
    }

    fn script(mut self, path: &str, text: &'static str) -> Entries {
        self.0.insert(path.into(), Entry::Program(text));
        self
    }

    fn text(mut self, path: &str, text: &'static str) -> Entries {
        self.0.insert(path.into(), Entry::Text(text));
        self
    }

    fn link(mut self, path: &str, target: &'static str) -> Entries {
        self.0.insert(path.into(), Entry::Link(target));
        self
    }

    /// Follows every symlink on the way.
    fn real(&self, path: &Path) -> PathBuf {
        let mut real = path.to_owned();
        'again: for _ in 0..40 {
            for ancestor in real.ancestors() {
                if let Some(Entry::Link(target)) = self.0.get(ancestor) {
                    let rest = real.strip_prefix(ancestor).unwrap().to_owned();
                    let mut next = ancestor.parent().unwrap().join(target);
                    if !rest.as_os_str().is_empty() {
                        next.push(rest);
                    }
                    real = next;
                    continue 'again;
                }
            }
            return real;
        }
        real
    }
}

impl DiscoveryFiles for Entries {
    fn executable(&self, path: &Path) -> Option<Vec<u8>> {
        match self.0.get(&self.real(path))? {
            Entry::Program(text) => Some(text.as_bytes().to_vec()),
            _ => None,
        }
    }

    fn text(&self, path: &Path) -> Option<String> {
        match self.0.get(&self.real(path))? {
            Entry::Text(text) => Some((*text).into()),
            _ => None,
        }
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.0.get(path)? {
            Entry::Link(target) => Some(target.into()),
            _ => None,
        }
    }

    fn list(&self, path: &Path) -> Vec<String> {
        let real = self.real(path);
        let below = self.0.keys().filter_map(|p| p.strip_prefix(&real).ok()?.components().next());
        let mut names: Vec<String> = below.map(|c| c.as_os_str().to_str().unwrap().to_owned()).collect();
        names.dedup();
        names
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        Some(self.real(path))
    }
}

/// The program, and the paths inside at which something is mounted for it.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    program: String,
    needs: Vec<String>,
}

fn caller(path: &str, variables: &[(&str, &str)]) -> Caller {
    let mut all: BTreeMap<String, String> = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    all.insert("PATH".into(), path.into());
    Caller { cwd: "/home/u/project/deep".into(), homes: vec!["/home/u".into()], variables: all, ..Caller::default() }
}

/// What `eval` makes of it: the program, and what is mounted for it.
fn found(tree: &Entries, caller: &Caller, name: &str) -> Option<Interpreter> {
    let mut policy = Policy::base();
    preset::apply(&mut policy, caller.around(), tree, name, CodeSource::Interactive, &[]).ok()?;
    let mut needs: Vec<String> = policy.filesystem.mounts.iter().map(|m| m.target().to_owned()).collect();
    needs.sort();
    Some(Interpreter { program: policy.command.argv[0].clone(), needs })
}

fn is(program: &str, needs: &[&str]) -> Option<Interpreter> {
    Some(Interpreter { program: program.into(), needs: needs.iter().map(|n| (*n).to_owned()).collect() })
}

fn pyenv() -> Entries {
    Entries::default()
        .script("/home/u/.pyenv/shims/python3", PYENV_SHIM)
        .text("/home/u/.pyenv/version", "3.11.7\n")
        .link("/home/u/.pyenv/versions/3.11.7/bin/python3", "python3.11")
        .program("/home/u/.pyenv/versions/3.11.7/bin/python3.11")
        .text("/home/u/.pyenv/versions/3.11.7/lib/python3.11/os.py", "")
        .program("/home/u/.pyenv/versions/3.12.10/bin/python3")
        .text("/home/u/.pyenv/versions/3.12.10/lib/python3.12/os.py", "")
        .program("/home/u/.pyenv/versions/3.12.9/bin/python3")
        .text("/home/u/.pyenv/versions/3.12.9/lib/python3.12/os.py", "")
        .program("/usr/bin/python3")
}

const PYENV_PATH: &str = "/home/u/.pyenv/shims:/usr/bin";

#[test]
fn the_systems_interpreter_needs_nothing_more() {
    let tree = Entries::default().link("/usr/bin/python3", "python3.11").program("/usr/bin/python3.11");
    assert_eq!(found(&tree, &caller("/usr/local/bin:/usr/bin", &[]), "python"), is("/usr/bin/python3", &[]));
}

#[test]
fn entries_of_path_in_any_spelling_lead_to_what_a_policy_takes() {
    let versions = "/home/u/.pyenv/versions/3.11.7";
    let expected = is(&format!("{versions}/bin/python3"), &[versions]);
    for path in [
        format!("{versions}/bin"),
        format!("/{versions}/bin/"),
        "/home//u/./.pyenv/versions/3.11.7//bin/.".to_owned(),
        // Entries without a program: none, relative, not there, with a line feed, a file, and one longer than any path.
        format!(":bin:./bin:/no:/no\nwhere:/usr/bin/python3:/{}:{versions}/bin:", "n/".repeat(3000)),
    ] {
        assert_eq!(found(&pyenv(), &caller(&path, &[]), "python"), expected, "{path}");
    }
    // A root of versions in such a spelling.
    let spelled = [("PYENV_ROOT", "//home/u/./.pyenv/")];
    assert_eq!(found(&pyenv(), &caller(PYENV_PATH, &spelled), "python"), expected);
    // One that names no place in a policy is passed over, as the entry that leads to it.
    for root in ["/home/u/x/../.pyenv", "home/u/.pyenv"] {
        let tree = pyenv().text(&format!("{root}/version"), "3.11.7\n");
        let tree = tree.program(&format!("{root}/versions/3.11.7/bin/python3"));
        assert_eq!(found(&tree, &caller(PYENV_PATH, &[("PYENV_ROOT", root)]), "python"), is("/usr/bin/python3", &[]));
    }
}

#[test]
fn a_pyenv_shim_leads_to_the_global_version() {
    let expected = is("/home/u/.pyenv/versions/3.11.7/bin/python3", &["/home/u/.pyenv/versions/3.11.7"]);
    assert_eq!(found(&pyenv(), &caller(PYENV_PATH, &[]), "python"), expected);
}

#[test]
fn pyenv_prefers_variable_to_directory_to_global_version() {
    let tree = pyenv().text("/home/u/project/.python-version", "3.12\n");
    let of = |variables: &[(&str, &str)]| found(&tree, &caller(PYENV_PATH, variables), "python").unwrap().program;
    assert_eq!(of(&[]), "/home/u/.pyenv/versions/3.12.10/bin/python3", "the newest 3.12, by number");
    assert_eq!(of(&[("PYENV_VERSION", "3.12.9")]), "/home/u/.pyenv/versions/3.12.9/bin/python3");
    assert_eq!(of(&[("PYENV_VERSION", "system")]), "/usr/bin/python3");
    assert_eq!(of(&[("PYENV_VERSION", "3.5:3.11.7")]), "/home/u/.pyenv/versions/3.11.7/bin/python3");
}

#[test]
fn a_version_file_names_a_version_and_never_a_path() {
    let tree = pyenv().text("/home/u/project/.python-version", "../../../evil\n").program("/home/evil/bin/python3");
    assert_eq!(found(&tree, &caller(PYENV_PATH, &[]), "python").unwrap().program, "/usr/bin/python3");
}

#[test]
fn a_venv_keeps_its_own_path_and_brings_its_base() {
    let tree = pyenv()
        .link("/home/u/project/.venv/bin/python3", "/home/u/.pyenv/versions/3.11.7/bin/python3")
        .text("/home/u/project/.venv/pyvenv.cfg", "home = /home/u/.pyenv/versions/3.11.7/bin\nversion = 3.11.7\n");
    let expected =
        is("/home/u/project/.venv/bin/python3", &["/home/u/.pyenv/versions/3.11.7", "/home/u/project/.venv"]);
    assert_eq!(found(&tree, &caller("/home/u/project/.venv/bin:/usr/bin", &[]), "python"), expected);
}

#[test]
fn a_venv_of_the_systems_python_needs_only_itself() {
    // One in the home is none the less for the configuration of pip's that it may have, which is denied in it.
    for venv in ["/srv/venv", "/home/u/.venv", "/home/u/.venvs/one"] {
        let tree = Entries::default()
            .link(&format!("{venv}/bin/python3"), "/usr/bin/python3")
            .text(&format!("{venv}/pyvenv.cfg"), "home = /usr/bin\n")
            .link("/usr/bin/python3", "python3.11")
            .program("/usr/bin/python3.11");
        let expected = is(&format!("{venv}/bin/python3"), &[venv]);
        assert_eq!(found(&tree, &caller(&format!("{venv}/bin"), &[]), "python"), expected);
    }
}

#[test]
fn conda_and_links_to_directories_bring_each_place_on_the_way() {
    let tree = Entries::default()
        .program("/opt/conda-4/bin/python3.12")
        .link("/opt/conda-4/bin/python3", "python3.12")
        .text("/opt/conda-4/lib/python3.12/os.py", "")
        .link("/opt/conda", "conda-4");
    let expected = is("/opt/conda/bin/python3", &["/opt/conda", "/opt/conda-4"]);
    assert_eq!(found(&tree, &caller("/opt/conda/bin", &[]), "python"), expected);
}

#[test]
fn nvm_brings_the_versions_prefix() {
    let tree = Entries::default()
        .program("/home/u/.nvm/versions/node/v20.1.0/bin/node")
        .text("/home/u/.nvm/versions/node/v20.1.0/include/node/node.h", "");
    let expected = is("/home/u/.nvm/versions/node/v20.1.0/bin/node", &["/home/u/.nvm/versions/node/v20.1.0"]);
    assert_eq!(found(&tree, &caller("/home/u/.nvm/versions/node/v20.1.0/bin:/usr/bin", &[]), "node"), expected);
}

#[test]
fn asdf_reads_its_tool_versions() {
    let tree = Entries::default()
        .script("/home/u/.asdf/shims/node", "#!/usr/bin/env bash\nexec asdf exec \"node\" \"$@\"\n")
        .text("/home/u/.tool-versions", "python 3.11.7\nnodejs 18.0.0 20.1.0\n")
        .program("/home/u/.asdf/installs/nodejs/20.1.0/bin/node")
        .text("/home/u/.asdf/installs/nodejs/20.1.0/include/node/node.h", "");
    let expected = is("/home/u/.asdf/installs/nodejs/20.1.0/bin/node", &["/home/u/.asdf/installs/nodejs/20.1.0"]);
    assert_eq!(found(&tree, &caller("/home/u/.asdf/shims", &[]), "node"), expected);
}

#[test]
fn version_manager_that_is_its_own_shim_is_skipped() {
    let tree = Entries::default()
        .link("/home/u/.local/share/mise/shims/python3", "/usr/bin/mise")
        .program("/usr/bin/mise")
        .program("/usr/bin/python3");
    let path = "/home/u/.local/share/mise/shims:/usr/bin";
    assert_eq!(found(&tree, &caller(path, &[]), "python"), is("/usr/bin/python3", &[]));
}

#[test]
fn a_home_is_never_shown_for_the_sake_of_a_program_in_it() {
    for (program, os) in [
        ("/home/u/bin/python3", "/home/u/lib/python3.11/os.py"),
        ("/home/u/.local/bin/python3", "/home/u/.local/lib/python3.11/os.py"),
        ("/home/bin/python3", "/home/lib/python3.11/os.py"),
        // No proof that the directory is Python's own.
        ("/srv/tools/bin/python3", "/srv/tools/secrets"),
    ] {
        let tree = Entries::default().program(program).text(os, "");
        let directory = program.strip_suffix("/python3").unwrap();
        assert_eq!(found(&tree, &caller(directory, &[]), "python"), is(program, &[program]));
    }
}

/// Every mount of what `eval` makes: the source on the host, and the target inside.
fn mounted(tree: &Entries, caller: &Caller, name: &str) -> (String, Vec<(String, String)>) {
    let mut policy = Policy::base();
    preset::apply(&mut policy, caller.around(), tree, name, CodeSource::Interactive, &[]).unwrap();
    policy.validate().unwrap();
    let binds = policy.filesystem.mounts.iter().map(|mount| match mount {
        Mount::Bind { source, target, .. } => (source.clone(), target.clone()),
        Mount::Tmpfs { target, .. } => (String::new(), target.clone()),
    });
    let binds = binds.collect();
    assert!(policy.filesystem.deny.iter().any(|denied| denied == "/home/u/.ssh"), "credentials stay denied");
    (policy.command.argv[0].clone(), binds)
}

/// The system's Python, which makes `/` look like an installation.
fn system() -> Entries {
    Entries::default()
        .link("/usr/bin/python3", "python3.11")
        .program("/usr/bin/python3.11")
        .link("/bin", "usr/bin")
        .link("/lib", "usr/lib")
        .text("/lib/python3.11/os.py", "")
        .text("/usr/lib/python3.11/os.py", "")
        .text("/home/u/.ssh/id_rsa", "KEY")
}

const VENV_PATH: &str = "/home/u/project/.venv/bin:/usr/bin:/bin";

#[test]
fn venv_linked_to_root_or_home_shows_only_the_program() {
    for target in ["/", "/home", "/home/u", "/home/other", "/root", "/srv", "/home/u/.ssh", "/proc/self/root"] {
        let here = |name: &str| format!("{}/{name}", target.trim_end_matches('/'));
        let tree = system()
            .link("/home/u/project/.venv", target)
            .program(&here("bin/python3"))
            .text(&here("pyvenv.cfg"), "home = /usr/bin\n");
        let (program, mounts) = match target {
            // Not even the file is shown where credentials lie, or what is of each process its own.
            "/home/u/.ssh" | "/proc/self/root" => {
                let found = found(&tree, &caller(VENV_PATH, &[]), "python").unwrap();
                assert_eq!(found, is("/usr/bin/python3", &[]).unwrap());
                continue;
            }
            _ => mounted(&tree, &caller(VENV_PATH, &[]), "python"),
        };
        assert_eq!(program, "/home/u/project/.venv/bin/python3");
        for (source, _) in &mounts {
            assert!(source.ends_with("/bin/python3") || source.ends_with("/bin/python3.11"), "{target}: {mounts:?}");
        }
    }
}

#[test]
fn venv_whose_home_is_linked_to_root_shows_only_the_venv() {
    for (home, link) in [
        ("home = /home/u/project/lnk/bin\n", "/"),
        ("home = /home/u/project/lnk/bin\n", "/home/u"),
        ("home = /home/u/project/lnk/../../../bin\n", "sub"),
        ("home = /home/u/bin\n", "sub"),
    ] {
        let tree = system()
            .link("/home/u/project/.venv/bin/python3", "/usr/bin/python3")
            .text("/home/u/project/.venv/pyvenv.cfg", home)
            .link("/home/u/project/lnk", link)
            .text("/home/u/lib/python3.11/os.py", "");
        let venv = "/home/u/project/.venv".to_owned();
        let expected = ("/home/u/project/.venv/bin/python3".to_owned(), vec![(venv.clone(), venv)]);
        assert_eq!(mounted(&tree, &caller(VENV_PATH, &[]), "python"), expected, "{home}");
    }
}

#[test]
fn a_tool_versions_file_names_a_version_and_never_a_path() {
    let shim = "#!/usr/bin/env bash\nexec asdf exec \"python3\" \"$@\"\n";
    for version in ["python /home/u/project/evil\n", "python ../../../project/evil\n"] {
        let tree = system()
            .script("/home/u/.asdf/shims/python3", shim)
            .text("/home/u/project/.tool-versions", version)
            .link("/home/u/project/evil", "/")
            .program("/home/u/.asdf/installs/python/3.11.7/bin/python3")
            .text("/home/u/.asdf/installs/python/3.11.7/lib/python3.11/os.py", "");
        let path = "/home/u/.asdf/shims:/usr/bin";
        assert_eq!(found(&tree, &caller(path, &[]), "python"), is("/usr/bin/python3", &[]), "{version}");
        // Control: a version that is installed.
        let tree = tree.text("/home/u/project/.tool-versions", "python 3.11.7\n");
        let installed = "/home/u/.asdf/installs/python/3.11.7";
        let expected = is("/home/u/.asdf/installs/python/3.11.7/bin/python3", &[installed]);
        assert_eq!(found(&tree, &caller(path, &[]), "python"), expected);
    }
}

#[test]
fn a_version_that_is_a_link_and_a_shims_own_root_decide_nothing() {
    // A version of pyenv's that leads to `/`, and a shim in a project that names a root of its own.
    let tree = system()
        .script("/home/u/.pyenv/shims/python3", PYENV_SHIM)
        .text("/home/u/project/.python-version", "evil\n")
        .link("/home/u/.pyenv/versions/evil", "/");
    let (_, mounts) = mounted(&tree, &caller(PYENV_PATH, &[]), "python");
    assert_eq!(mounts.iter().map(|(source, _)| source.as_str()).collect::<Vec<_>>(), ["/usr/bin/python3.11"]);
    let shim = "#!/bin/sh\nexport PYENV_ROOT=\"/home/u/project/fake\"\nexec pyenv exec\n";
    let tree = system()
        .script("/home/u/project/.venv/bin/python3", shim)
        .text("/home/u/project/fake/version", "1\n")
        .link("/home/u/project/fake/versions/1", "/home/u")
        .program("/home/u/bin/python3")
        .text("/home/u/pyvenv.cfg", "home = /usr/bin\n");
    let (_, mounts) = mounted(&tree, &caller(VENV_PATH, &[]), "python");
    assert!(mounts.iter().all(|(source, _)| source == "/home/u/bin/python3"), "{mounts:?}");
    // nvm's `current`, a link in a home, to the root.
    let tree = Entries::default()
        .link("/home/u/.nvm/current", "/")
        .program("/bin/node")
        .text("/include/node/node.h", "")
        .text("/lib/node_modules/npm/package.json", "");
    let (_, mounts) = mounted(&tree, &caller("/home/u/.nvm/current/bin", &[]), "node");
    assert_eq!(mounts.iter().map(|(source, _)| source.as_str()).collect::<Vec<_>>(), ["/bin/node"]);
}

#[test]
fn link_target_is_mounted_by_its_canonical_path() {
    let tree = pyenv()
        .link("/home/u/project/.venv", "/home/u/venvs/p")
        .link("/home/u/venvs/p/bin/python3", "/home/u/.pyenv/versions/3.11.7/bin/python3")
        .text("/home/u/venvs/p/pyvenv.cfg", "home = /home/u/.pyenv/versions/3.11.7/bin\n");
    let (program, mounts) = mounted(&tree, &caller(VENV_PATH, &[]), "python");
    assert_eq!(program, "/home/u/project/.venv/bin/python3");
    let pair = |source: &str, target: &str| (source.to_owned(), target.to_owned());
    for expected in [
        pair("/home/u/venvs/p", "/home/u/project/.venv"),
        pair("/home/u/venvs/p", "/home/u/venvs/p"),
        pair("/home/u/.pyenv/versions/3.11.7", "/home/u/.pyenv/versions/3.11.7"),
    ] {
        assert!(mounts.contains(&expected), "{mounts:?}");
    }
}

#[test]
fn stores_are_shown_as_a_whole() {
    let tree = Entries::default()
        .link("/home/u/.nix-profile/bin/python3", "/nix/store/abc-python/bin/python3")
        .program("/nix/store/abc-python/bin/python3");
    let expected = is("/home/u/.nix-profile/bin/python3", &["/home/u/.nix-profile/bin/python3", "/nix/store"]);
    assert_eq!(found(&tree, &caller("/home/u/.nix-profile/bin", &[]), "python"), expected);
}

#[test]
fn relative_path_entries_and_link_loops_find_nothing() {
    let tree = Entries::default().program("/home/u/project/deep/bin/python3");
    assert_eq!(found(&tree, &caller("bin:.:", &[]), "python"), None);
    let tree = Entries::default().link("/opt/p/bin/python3", "python3");
    assert_eq!(found(&tree, &caller("/opt/p/bin", &[]), "python"), None);
}

#[test]
fn nothing_found_says_what_to_install() {
    for (name, package) in [("python", "python3"), ("shell", "bash"), ("node", "nodejs")] {
        let refusal = preset::apply(
            &mut Policy::base(),
            caller("/usr/bin", &[]).around(),
            &Entries::default(),
            name,
            CodeSource::Interactive,
            &[],
        )
        .unwrap_err();
        assert_eq!((refusal.code, refusal.hint), (127, Some(format!("apt-get install {package}"))));
    }
}

#[test]
fn long_code_goes_over_stdin_and_short_code_as_an_argument() {
    let tree = Entries::default().program("/usr/bin/bash").program("/usr/bin/python3").program("/usr/bin/node");
    let caller = caller("/usr/bin", &[]);
    let enter = |name: &str, code: &str, stdin: Stdin| {
        let mut policy = Policy::base();
        policy.command.stdin = stdin;
        let arguments = ["x".to_owned()];
        preset::apply(&mut policy, caller.around(), &tree, name, CodeSource::Text(code.into()), &arguments)
            .map(|()| policy)
    };
    let argv = |name: &str| enter(name, "1", Stdin::Closed).unwrap().command.argv;
    assert_eq!(argv("python"), ["/usr/bin/python3", "-c", "1", "x"]);
    assert_eq!(argv("shell"), ["/usr/bin/bash", "-c", "1", "shell", "x"]);
    assert_eq!(argv("node"), ["/usr/bin/node", "-e", "1", "x"]);
    let long = "#".repeat(preset::LONGEST_ARGUMENT + 1);
    let policy = enter("shell", &long, Stdin::Closed).unwrap();
    assert_eq!(policy.command.argv, ["/usr/bin/bash", "-s", "--", "x"]);
    assert_eq!(policy.command.stdin, Stdin::Text(long.clone()));
    assert!(enter("shell", &long, Stdin::Caller).unwrap_err().hint.unwrap().contains("--file"));
}

#[test]
fn a_file_runs_at_its_own_path_and_mounts_keep_their_order() {
    let tree = pyenv();
    let caller = caller(PYENV_PATH, &[]);
    let mut policy = Policy::base();
    let tmpfs = |target: &str| Mount::Tmpfs { target: target.into(), size_mb: 1, exec: false };
    // One mount outside of what the interpreter needs and one inside it.
    policy.filesystem.mounts = vec![tmpfs("/home/u"), tmpfs("/home/u/.pyenv/versions/3.11.7/cache")];
    let file = CodeSource::File { path: "/srv/a.py".into(), source: "/srv/real.py".into() };
    preset::apply(&mut policy, caller.around(), &tree, "python", file, &["x".into()]).unwrap();
    assert_eq!(policy.command.argv[1..], ["/srv/a.py", "x"]);
    let targets: Vec<&str> = policy.filesystem.mounts.iter().map(Mount::target).collect();
    let prefix = "/home/u/.pyenv/versions/3.11.7";
    assert_eq!(targets, ["/home/u", prefix, "/home/u/.pyenv/versions/3.11.7/cache", "/srv/a.py"]);
    assert!(matches!(policy.filesystem.mounts.last(), Some(Mount::Bind { source, .. }) if source == "/srv/real.py"));
    policy.validate().unwrap();
    assert!(policy.command.variables["PATH"].starts_with("/home/u/.pyenv/versions/3.11.7/bin:"));
}

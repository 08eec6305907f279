//! `cargo xtask generate`: man pages, completions and docs/cli.md out of the command line itself; the policy's schema and its
//! page.
//!
//! One table of options in crates/cli feeds the parser and all of these; none is edited by hand, and a test holds
//! them to it. Writes below docs/ and completions/ only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cofferdam::args::help::defaults;
use cofferdam::args::presets::TOOL_PRESETS;
use cofferdam::args::table::POLICY_OPTIONS;
use cofferdam::call::preset;
use cofferdam::cli_command;
use cofferdam_policy::bundles::HOST_BUNDLES;

use crate::Result;

/// Directories of which every file is generated.
const WHOLE: &[&str] = &["docs/man", "completions"];

/// Writes the generated files, or with `check` demands that they are there as they would be written.
pub(crate) fn generate(root: &Path, check: bool) -> Result {
    let files = files()?;
    let mut stale = Vec::new();
    for (name, text) in &files {
        let path = root.join(name);
        if std::fs::read(&path).is_ok_and(|there| there == *text) {
            continue;
        }
        if check {
            stale.push(name.clone());
            continue;
        }
        let parent = path.parent().unwrap_or(root);
        std::fs::create_dir_all(parent).map_err(|e| format!("cannot make {}: {e}", parent.display()))?;
        std::fs::write(&path, text).map_err(|e| format!("cannot write {name}: {e}"))?;
        eprintln!("wrote {name}");
    }
    let expected: BTreeSet<&String> = files.keys().collect();
    for directory in WHOLE {
        for entry in std::fs::read_dir(root.join(directory)).into_iter().flatten().flatten() {
            let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
            if expected.contains(&name) {
                continue;
            }
            if check {
                stale.push(name);
            } else {
                std::fs::remove_file(entry.path()).map_err(|e| format!("cannot remove {name}: {e}"))?;
                eprintln!("removed {name}");
            }
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("not as generated: {}; run `cargo xtask generate`", stale.join(", ")))
}

/// Every generated file by its path below the root.
fn files() -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    // `help` has no page of its own to refer to.
    let mut command = cli_command().disable_help_subcommand(true);
    command.build();
    man_pages(&command, &mut files)?;
    for (shell, name) in [
        (clap_complete::Shell::Bash, "cofferdam.bash"),
        (clap_complete::Shell::Fish, "cofferdam.fish"),
        (clap_complete::Shell::Zsh, "_cofferdam"),
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut cli_command(), "cofferdam", &mut script);
        files.insert(format!("completions/{name}"), tidy(&script));
    }
    files.insert("docs/cli.md".into(), page(&command).into_bytes());
    files.insert("docs/bundles.md".into(), bundles().into_bytes());
    files.insert("docs/presets.md".into(), presets().into_bytes());
    files.insert("docs/policy.md".into(), crate::policy_page::page()?.into_bytes());
    files.insert("docs/policy.schema.json".into(), cofferdam_policy::schema::json_schema_text().into_bytes());
    Ok(files)
}

fn man_pages(command: &clap::Command, files: &mut BTreeMap<String, Vec<u8>>) -> Result {
    let mut pages = vec![("cofferdam".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name = format!("cofferdam-{}", sub.get_name());
        let inner = sub.get_subcommands().filter(|inner| inner.get_name() != "help");
        pages.extend(inner.map(|inner| (format!("{name}-{}", inner.get_name()), inner.clone())));
        pages.push((name, sub.clone()));
    }
    for (name, command) in pages {
        let mut text = Vec::new();
        // No date: the pages have to come out the same on every day.
        clap_mangen::Man::new(command)
            .manual("Cofferdam")
            .source(format!("cofferdam {}", env!("CARGO_PKG_VERSION")))
            .render(&mut text)
            .map_err(|e| format!("man page {name}: {e}"))?;
        files.insert(format!("docs/man/{name}.1"), tidy(&text));
    }
    Ok(())
}

/// Without blanks at the ends of lines, and with one line feed at the end.
fn tidy(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut tidy: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    tidy.truncate(tidy.trim_end().len());
    tidy.push('\n');
    tidy.into_bytes()
}

fn page(command: &clap::Command) -> String {
    let mut page = String::from(
        "<!-- Generated from crates/cli by `cargo xtask generate`; regenerate it, do not edit it. -->\n\n\
         # The command\n\n",
    );
    page.push_str(&format!("{}\n", command.get_about().map(ToString::to_string).unwrap_or_default()));
    page.push_str(&format!(
        "\n```text\n{}\n```\n",
        command.get_after_help().map(ToString::to_string).unwrap_or_default()
    ));
    page.push_str(TEXT);
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name = sub.get_name();
        page.push_str(&format!("\n## cofferdam {name}\n\n"));
        page.push_str(&format!("{}.\n\n", sub.get_about().map(ToString::to_string).unwrap_or_default()));
        let usage = sub.clone().render_usage().to_string();
        page.push_str(&format!("```text\n{}\n```\n\n", usage.trim_start_matches("Usage: ")));
        match name {
            "eval" => {
                let names = preset::NAMES.join("`, `");
                page.push_str(&format!(
                    "Environments: `{names}`. Options are those of `run`, and these; defaults differ:\n\n"
                ));
                options(&mut page, sub, |long| long == "file");
                page.push_str(&format!("\n```text\n{}```\n", defaults("minimal")));
            }
            "run" => {
                options(&mut page, sub, |_| true);
                page.push_str(&format!("\n```text\n{}```\n", defaults("host")));
            }
            _ => {
                options(&mut page, sub, |_| true);
                if let Some(text) = sub.get_after_help() {
                    page.push_str(&format!("\n{text}\n"));
                }
            }
        }
    }
    page
}

/// The page of bundles, out of the table that the policy's reader has.
fn bundles() -> String {
    let mut page = String::from(BUNDLES);
    for bundle in HOST_BUNDLES {
        let hosts: Vec<String> = bundle.hosts.iter().map(|host| format!("`{host}`")).collect();
        let (purpose, lets_out) = (cell(bundle.purpose), cell(bundle.lets_out));
        page.push_str(&format!("| `@{}` | {purpose} | {} | {lets_out} |\n", bundle.name, hosts.join(", ")));
    }
    page
}

/// The page of presets, out of the table that the command has.
fn presets() -> String {
    let mut page = String::from(PRESETS);
    for preset in TOOL_PRESETS {
        let typed: Vec<String> = preset.typed().iter().map(|typed| format!("`{}`", cell(typed))).collect();
        let kept: Vec<String> = preset.caches.iter().map(|cache| format!("`{cache}`")).collect();
        let (options, kept) = (typed.join(", "), kept.join(", "));
        page.push_str(&format!("| `{}` | {} | {options} | {kept} |\n", preset.name, cell(preset.purpose)));
    }
    page
}

fn options(page: &mut String, command: &clap::Command, wanted: impl Fn(&str) -> bool) {
    page.push_str("| option | meaning | policy field |\n|---|---|---|\n");
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long().filter(|long| wanted(long) && *long != "help") else { continue };
        let short = arg.get_short().map(|s| format!("-{s}, ")).unwrap_or_default();
        let value = match arg.get_value_names() {
            Some([name, ..]) if arg.is_require_equals_set() => format!("[={name}]"),
            Some([name, ..]) if arg.get_action().takes_values() => format!(" {name}"),
            _ => String::new(),
        };
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let leaves = POLICY_OPTIONS.iter().find(|o| o.long == long).map(|o| o.leaves).unwrap_or_default();
        let leaves: Vec<String> = leaves.iter().map(|leaf| format!("`{leaf}`")).collect();
        let option = cell(&format!("{short}--{long}{value}"));
        page.push_str(&format!("| `{option}` | {} | {} |\n", cell(&help), leaves.join(", ")));
    }
}

/// A table cell ends at a bar even inside code.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const BUNDLES: &str = "<!-- Generated from crates/policy/src/bundles.rs by `cargo xtask generate`; regenerate it, do not edit it. -->

# Bundles of hosts

A bundle is a name for the hosts that a tool needs, wherever hosts are allowed:

```sh
cofferdam run --network allow=@pypi,@npm,downloads.example.org -- ./build.sh
cofferdam run --allow @github -- git ls-remote https://github.com/example/project.git
```

In a policy file it is an entry of `network.allow`, in a profile one of `allowed_domains`, in a configuration of skills the
operator's one of `allowedHosts`. A skill's own manifest names hosts, never bundles. A bundle is expanded when it is read: policies, `--dry-run`, outcomes and the audit trail have the
hosts, and a policy that was printed allows the same with a later version. What is [denied](network.md#entries) has hosts
alone.

Each host is named exactly, with its ports. No bundle has user pages or a cloud's storage, where anybody publishes under a name
of their own (`*.github.io`, `*.amazonaws.com`): where a tool is redirected there, the refusal names the host. Some downloads of
`@go` lead to `storage.googleapis.com`, and large files of `@github` to storage of that kind.

**A host that takes data is a way out.** A program needs no key of yours for it: it can bring a key of its own, and
push, publish or send to that account whatever it can read. Name the bundles that a run needs, and let the sandbox see little.

| bundle | for | hosts | what it lets out |
|---|---|---|---|
";

const PRESETS: &str = "<!-- Generated from crates/cli/src/args/presets.rs by `cargo xtask generate`; regenerate it, do not edit it. -->

# Presets for tools

`run --for TOOL` gives a tool what it needs besides the project:

```sh
cofferdam run --here --for npm npm install
cofferdam run --for pip -- uv run tool.py
cofferdam run --for cargo --dry-run -- cargo build | jq .for
```

A preset stands for the options below, and `--dry-run` prints them as `for`. They apply first: an option that is typed wins, and
`--network none` takes the hosts away. It may be given several times. Nothing in the directory chooses a preset, and none makes
the directory writable: that is `--here`. With `--policy` or `--profile`, which say themselves what is allowed, it is refused.

The home inside is an empty file system in memory, on which programs can be started: caches, downloaded tools and temporary files
go there, and go with the run. The caches and the credentials of your own home are not used. The limits are held as far as the
host allows, as those of every run are. What [hosts](bundles.md) let out is said there.

With `--cache` the caches of the table are kept between runs, so that what was downloaded once is there the next time, without a
network as well:

```sh
cofferdam run --here --for npm --cache npm install
cofferdam run --here --for npm --cache --network none npm ci --offline
```

They are directories of yours, below `~/.cache/cofferdam-caches` (or `XDG_CACHE_HOME`), one for each path of a working directory,
which can be removed at any time. What a run puts there, later runs in the same directory obey, as they obey the project's own
files, and so does another project that is put at the same path; remove the cache of one whose code you no longer trust. No other
run sees it: every run hides the place, also where a variable moved it, and a volume that would show those of other projects is
refused. Nothing else of the home is kept: no settings, no programs that were installed there, no credentials.

The working directory is the one that Cofferdam is started in, and all volumes that a run shows share its cache. So a service that
works on many projects changes to each of them: `--cache` is refused where `-w` leads out of the working directory.

Where `XDG_CACHE_HOME` moved them, the directory must be one that Cofferdam made and remembers, in its state directory
(`~/.local/state/cofferdam/caches`): one that something else made there before its first use, or after it was removed, is refused, and
so is a link in its place. Runs with another `HOME` or `XDG_STATE_HOME` do not know the place, and one that began before its first use
can reach it. Where the home is made anew for each job, as in CI, keep the state directory together with the caches.

| preset | for | options | kept with `--cache`, below `/tmp/home` |
|---|---|---|---|
";

const TEXT: &str = "
Options are written before PROGRAM; everything from PROGRAM on is the program's own. The last word counts where an
option is given twice. Relative paths start at the working directory, on both sides of a volume.

An option replaces what the defaults or `--policy FILE` say and goes through the same validation; one that may be given
several times adds to it, and so do the hosts of `--network allow=`. What an option names
is *required*: where this host cannot hold it in full, nothing starts, and the error says what is missing.
`--best-effort` takes that back.

`--profile FILE.ncl` evaluates a Nickel profile and starts from what it becomes, `--profile ID` from a stored one:
[profiles](profiles.md). The policy or profile then decides what is denied. Without one, the caller's credentials are hidden
in `run`, with [most dot names of the home](home.md), and in `eval` where `-v`, `--root` or the interpreter shows more than
system files. `--deny` adds to either. `eval -v` does not
change the working directory, which is the home inside; `-w` does.

`COFFERDAM_PROFILES` names the store, `COFFERDAM_LIBEXEC` the directory of the evaluator.

| exit code | meaning |
|---|---|
| the program's own | it exited |
| 128 + N | signal N ended it, or signal N ended Cofferdam itself while it ran |
| 124 | the wall limit ended it |
| 137 | another limit, or a violation under `--on-violation terminate`, ended it |
| 125 | Cofferdam refused or failed; the reason is on standard error |
| 126, 127 | the program cannot be executed, was not found |

The program's output passes through as it comes. With `--json` nothing passes through, and standard output carries one
[outcome object](outcome.md) whatever happened, also for arguments that cannot be read. What is worth knowing after a run
(a limit, a refusal, cut output, changed files) is reported on standard error in lines that begin with `cofferdam:`, unless
`--quiet` is given. A run whose standard output is closed goes on as if it were `/dev/null`; when a reader goes away, the
program learns it as from a pipe. Where output finds no room, as on a full disk, that is said and exit code 0 becomes 125.
Commands that only read (`--dry-run`, `check`, `doctor`, and what `audit`, `skill` and `environment` show) end without a word
and with 141, as by `SIGPIPE`, when the reader of their output goes away, as `head` does.

Ctrl-C, `SIGTERM`, `SIGHUP` and `SIGQUIT` are passed on to the program, which has `--grace` (10 s) to end by itself; a second one
kills it at once, and so does every limit. What is typed at a terminal of its own goes to the program, but Ctrl-C five times
in a row within two seconds ends the run: [more](outcome.md#how-a-run-is-ended). With `-t` where standard input is a pipe or a file,
as in `seq 1000 | cofferdam run -t less`, the program reads that, and its terminal has the keys; what feeds the pipe gets no Ctrl-C.
What `--keep-changes` keeps, and what it only lists, is [there as well](outcome.md#what---keep-changes-dir-keeps).

A program that fails and says that its directory is read-only, or that a name does not resolve, gets a note with the option that
changes it. That goes by the program's own words, which the kernel does not confirm, and is no violation; `--trace` reports each
path that was refused.

`eval` takes the first interpreter on the caller's PATH that leads to a real program: through the shims of pyenv, nodenv and
asdf, venvs and symbolic links. `python` looks for `python3`, then `python`; `shell` for `bash`, then `sh`; `node` for
`node`, then `nodejs`. What it needs outside of the system's directories is shown at its own place, read-only.

`--dry-run` prints one JSON object, the complete policy and the plan of the very call, and starts nothing. What `--policy`
and `check` take is its `policy`: `cofferdam run --dry-run … | jq .policy`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_as_they_would_be_written() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        generate(root, true).unwrap();
    }
}

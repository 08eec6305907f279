//! The presets of `--for`: for a tool, the options that it needs in a sandbox. Rows only, and their look-up.
//!
//! A preset is applied before the options of the command line, which win. It stands for options alone: nothing that cannot be
//! typed, nothing of what lies in the directory, and no file of the caller's but those that every `run` shows.

use cofferdam_policy::closest;

/// What a tool needs.
#[derive(Debug)]
pub struct ToolPreset {
    /// The value of `--for`.
    pub name: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// The options, by their long names, and their values.
    pub options: &'static [(&'static str, &'static str)],
    /// Directories below [`cofferdam_policy::OWN_HOME`] that `--cache` keeps.
    pub caches: &'static [&'static str],
    /// Programs that get a first argument of the preset's, and that argument: what no option and no variable says to them.
    pub argument: Option<(&'static [&'static str], &'static str)>,
}

/// A home in memory, with room for caches, from which programs can be started: what the tool keeps goes with the run.
const HOME: (&str, &str) = ("tmpfs", "/tmp/home:size=2g,exec");
/// Temporary files go where programs can be started, and where there is room.
const TMPDIR: (&str, &str) = ("env", "TMPDIR=/tmp/home");
/// Builds start many processes.
const PIDS: (&str, &str) = ("pids", "4096");

/// Programs of Chromium.
const BROWSERS: &[&str] =
    &["chromium", "chromium-browser", "chrome", "google-chrome", "google-chrome-stable", "headless_shell"];

/// Every preset.
pub const TOOL_PRESETS: &[ToolPreset] = &[
    ToolPreset {
        name: "npm",
        purpose: "`npm`, `npx`, `yarn` and `pnpm`",
        options: &[
            ("allow", "@npm"),
            HOME,
            TMPDIR,
            PIDS,
            ("env", "npm_config_cache=/tmp/home/.npm"),
            ("env", "npm_config_update_notifier=false"),
            ("env", "npm_config_fund=false"),
        ],
        caches: &[".npm", ".cache/yarn", ".yarn", ".local/share/pnpm"],
        argument: None,
    },
    ToolPreset {
        name: "pip",
        purpose: "`pip`, `uv` and `poetry`",
        options: &[
            ("allow", "@pypi"),
            HOME,
            TMPDIR,
            PIDS,
            ("env", "PIP_CACHE_DIR=/tmp/home/.cache/pip"),
            ("env", "PIP_DISABLE_PIP_VERSION_CHECK=1"),
            ("env", "PIP_ROOT_USER_ACTION=ignore"),
            ("env", "UV_CACHE_DIR=/tmp/home/.cache/uv"),
            ("env", "UV_LINK_MODE=copy"),
            ("env", "POETRY_CACHE_DIR=/tmp/home/.cache/pypoetry"),
        ],
        caches: &[".cache/pip", ".cache/uv", ".cache/pypoetry"],
        argument: None,
    },
    ToolPreset {
        name: "cargo",
        purpose: "`cargo`",
        options: &[("allow", "@crates"), HOME, TMPDIR, PIDS, ("env", "CARGO_HOME=/tmp/home/.cargo")],
        caches: &[".cargo/registry", ".cargo/git"],
        argument: None,
    },
    ToolPreset {
        name: "make",
        purpose: "`make`, `cmake`, `ninja` and compilers",
        options: &[HOME, TMPDIR, PIDS],
        caches: &[".cache/ccache"],
        argument: None,
    },
    ToolPreset {
        name: "go",
        purpose: "`go`",
        options: &[
            ("allow", "@go"),
            HOME,
            TMPDIR,
            PIDS,
            ("env", "GOPATH=/tmp/home/go"),
            ("env", "GOCACHE=/tmp/home/.cache/go-build"),
        ],
        caches: &["go/pkg/mod", ".cache/go-build"],
        argument: None,
    },
    ToolPreset {
        name: "maven",
        purpose: "`mvn`",
        // Java takes the home from the user database, and not from HOME.
        options: &[("allow", "@maven"), HOME, TMPDIR, PIDS, ("env", "MAVEN_OPTS=-Duser.home=/tmp/home")],
        caches: &[".m2/repository"],
        argument: None,
    },
    ToolPreset {
        name: "gradle",
        purpose: "`gradle`",
        options: &[
            ("allow", "@gradle"),
            ("allow", "@maven"),
            HOME,
            TMPDIR,
            PIDS,
            ("env", "GRADLE_USER_HOME=/tmp/home/.gradle"),
            ("env", "GRADLE_OPTS=-Duser.home=/tmp/home"),
        ],
        caches: &[".gradle/caches", ".gradle/wrapper", ".m2/repository"],
        argument: None,
    },
    ToolPreset {
        name: "browser",
        purpose: "Chromium without a window. Its own sandbox would need namespaces, which programs here have none of, and is left \
                  out: this one is around it",
        options: &[("unix-sockets", ""), HOME, TMPDIR, PIDS],
        caches: &[],
        argument: Some((BROWSERS, "--no-sandbox")),
    },
    ToolPreset {
        name: "jupyter",
        purpose: "notebooks, whose kernels are reached over the sandbox's own loopback",
        options: &[
            ("network", "loopback"),
            HOME,
            TMPDIR,
            PIDS,
            ("env", "JUPYTER_RUNTIME_DIR=/tmp/home/.local/share/jupyter/runtime"),
        ],
        caches: &[],
        argument: None,
    },
    ToolPreset {
        name: "agent",
        purpose: "coding agents that talk to Anthropic, OpenAI or Gemini; the key is named with -e",
        options: &[("allow", "@anthropic"), ("allow", "@openai"), ("allow", "@gemini"), HOME, TMPDIR, PIDS],
        caches: &[],
        argument: None,
    },
];

/// Tools that a preset of another name is for.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("chrome", "browser"),
    ("chromium", "browser"),
    ("claude", "agent"),
    ("cmake", "make"),
    ("codex", "agent"),
    ("golang", "go"),
    ("java", "maven"),
    ("mvn", "maven"),
    ("node", "npm"),
    ("notebook", "jupyter"),
    ("npx", "npm"),
    ("pnpm", "npm"),
    ("poetry", "pip"),
    ("python", "pip"),
    ("rust", "cargo"),
    ("uv", "pip"),
    ("yarn", "npm"),
];

/// The preset that a program needs, where there is one.
pub(crate) fn preset_of(argv: &[String]) -> Option<&'static str> {
    const PROGRAMS: [(&str, &[&str]); 7] = [
        ("npm", &["npm", "npx", "pnpm", "yarn"]),
        ("pip", &["pip", "pip3", "pipx", "poetry", "uv"]),
        ("cargo", &["cargo"]),
        ("go", &["go"]),
        ("maven", &["mvn"]),
        ("gradle", &["gradle"]),
        ("browser", BROWSERS),
    ];
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let program = match argv {
        [python, option, module, ..] if name(python).starts_with("python") && option == "-m" => module.clone(),
        [program, ..] => name(program),
        [] => return None,
    };
    PROGRAMS.iter().find(|(_, programs)| programs.contains(&program.as_str())).map(|(preset, _)| *preset)
}

/// The preset of this name.
///
/// # Errors
/// There is none, with the ones that there are and the one that was probably meant.
pub(crate) fn tool_preset(name: &str) -> Result<&'static ToolPreset, String> {
    let names = || TOOL_PRESETS.iter().map(|preset| preset.name);
    if let Some(preset) = TOOL_PRESETS.iter().find(|preset| preset.name == name) {
        return Ok(preset);
    }
    let other = OTHER_NAMES.iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, name)| *name);
    let list = names().collect::<Vec<_>>().join(", ");
    let unknown = format!("`{}` is none of {list}", cofferdam_policy::text::one_line(name));
    Err(match other.or_else(|| closest(name, names())) {
        Some(meant) => format!("{unknown}; did you mean `{meant}`?\nhint: --for {meant}"),
        None => unknown,
    })
}

impl ToolPreset {
    /// The options as they are typed.
    pub fn typed(&self) -> Vec<String> {
        let quoted = |value: &str| if value.contains(' ') { format!("'{value}'") } else { value.to_owned() };
        let one = |(long, value): &(&str, &str)| match value.is_empty() {
            true => format!("--{long}"),
            false => format!("--{long} {}", quoted(value)),
        };
        let mut typed: Vec<String> = self.options.iter().map(one).collect();
        typed.extend(self.argument.map(|(programs, argument)| format!("-- {} {argument} …", programs[0])));
        typed
    }

    /// Adds the preset's own argument to the command, if its program is one that gets it.
    pub(crate) fn add_argument(&self, argv: &mut Vec<String>) {
        let Some((programs, argument)) = self.argument else { return };
        let name = argv.first().and_then(|program| program.rsplit('/').next());
        if name.is_some_and(|name| programs.contains(&name)) && !argv.iter().any(|word| word == argument) {
            argv.insert(1, argument.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::option::Takes;
    use crate::args::table::POLICY_OPTIONS;

    #[test]
    fn each_option_of_a_preset_is_an_option() {
        for preset in TOOL_PRESETS {
            for (long, value) in preset.options {
                let option = POLICY_OPTIONS.iter().find(|option| option.long == *long);
                let option = option.unwrap_or_else(|| panic!("--for {}: --{long}", preset.name));
                assert_eq!(option.takes == Takes::Nothing, value.is_empty(), "--for {}: --{long}", preset.name);
                assert!(!option.late, "--for {}: --{long}", preset.name);
            }
        }
    }

    #[test]
    fn unknown_preset_is_answered_with_those_that_there_are() {
        for (given, meant) in [("node", "npm"), ("nmp", "npm"), ("Rust", "cargo"), ("gradel", "gradle")] {
            let error = tool_preset(given).unwrap_err();
            assert!(error.ends_with(&format!("did you mean `{meant}`?\nhint: --for {meant}")), "{given}: {error}");
        }
        assert!(tool_preset("something").unwrap_err().ends_with("browser, jupyter, agent"));
        for (_, name) in OTHER_NAMES {
            assert!(tool_preset(name).is_ok(), "{name}");
        }
    }
}

//! The agents of `cofferdam agent`: for a coding agent, what it needs in a sandbox. Rows only, and their look-up.

use cofferdam_policy::closest;

/// What a coding agent needs.
#[derive(Debug)]
pub struct CodingAgent {
    /// Its name, which is that of its program.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// The command that installs it.
    pub install: &'static str,
    /// Bundles of hosts.
    pub hosts: &'static [&'static str],
    /// Variables of the caller's that hold its keys.
    pub keys: &'static [&'static str],
    /// The variable in which it looks for the key besides.
    pub key_as: Option<&'static str>,
    /// Variables of the caller's that choose a model or a provider.
    pub choices: &'static [&'static str],
    /// Variables of the row's own.
    pub variables: &'static [(&'static str, &'static str)],
    /// Arguments that it gets first: the sandbox is what holds it, and not its questions.
    pub arguments: &'static [&'static str],
    /// Directories of the home in which it keeps what it remembers: a copy of the project's own, kept between runs.
    pub state: &'static [&'static str],
    /// Files in those directories that log it in, copied from the home where no key is given.
    pub login: &'static [(&'static str, &'static str)],
    /// Settings in the home, which are shown read-only.
    pub settings: &'static [&'static str],
    /// A file that the state begins with, and its content. `@CWD@` stands for the working directory, `@KEY@` for the end of the key.
    pub first: Option<(&'static str, &'static str, &'static str)>,
}

/// Every agent.
pub const AGENTS: &[CodingAgent] = &[
    CodingAgent {
        name: "claude",
        title: "Claude Code",
        install: "npm install -g @anthropic-ai/claude-code",
        hosts: &["@anthropic"],
        keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        key_as: None,
        choices: &["ANTHROPIC_MODEL"],
        variables: &[
            ("CLAUDE_CONFIG_DIR", "/tmp/home/.claude"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_INSTALLATION_CHECKS", "1"),
            ("IS_SANDBOX", "1"),
        ],
        arguments: &["--dangerously-skip-permissions"],
        state: &[".claude"],
        login: &[(".claude", ".credentials.json")],
        settings: &[
            ".claude/CLAUDE.md",
            ".claude/agents",
            ".claude/commands",
            ".claude/hooks",
            ".claude/plugins",
            ".claude/settings.json",
            ".claude/skills",
        ],
        first: Some((
            ".claude",
            ".claude.json",
            r#"{"hasCompletedOnboarding":true,"bypassPermissionsModeAccepted":true,"customApiKeyResponses":{"approved":["@KEY@"]},"projects":{"@CWD@":{"hasTrustDialogAccepted":true}}}"#,
        )),
    },
    CodingAgent {
        name: "codex",
        title: "Codex",
        install: "npm install -g @openai/codex",
        hosts: &["@openai"],
        keys: &["CODEX_API_KEY", "OPENAI_API_KEY"],
        key_as: Some("CODEX_API_KEY"),
        choices: &[],
        variables: &[("CODEX_HOME", "/tmp/home/.codex")],
        arguments: &["--dangerously-bypass-approvals-and-sandbox"],
        state: &[".codex"],
        login: &[(".codex", "auth.json")],
        settings: &[".codex/AGENTS.md", ".codex/config.toml", ".codex/prompts", ".codex/rules", ".codex/skills"],
        first: None,
    },
    CodingAgent {
        name: "gemini",
        title: "Gemini CLI",
        install: "npm install -g @google/gemini-cli",
        hosts: &["@gemini"],
        keys: &["GEMINI_API_KEY"],
        key_as: None,
        choices: &["GEMINI_MODEL"],
        variables: &[("GEMINI_CLI_TRUST_WORKSPACE", "true")],
        arguments: &["--yolo"],
        state: &[".gemini"],
        login: &[(".gemini", "oauth_creds.json"), (".gemini", "google_accounts.json")],
        settings: &[".gemini/GEMINI.md", ".gemini/commands", ".gemini/extensions", ".gemini/settings.json"],
        first: None,
    },
    CodingAgent {
        name: "aider",
        title: "aider",
        install: "pipx install aider-chat",
        hosts: &["@anthropic", "@gemini", "@openai"],
        keys: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"],
        key_as: None,
        choices: &["AIDER_MODEL"],
        variables: &[("AIDER_ANALYTICS", "false"), ("AIDER_CHECK_UPDATE", "false")],
        arguments: &[],
        state: &[".aider"],
        login: &[],
        settings: &[".aider.conf.yml", ".aider.model.settings.yml"],
        first: None,
    },
    CodingAgent {
        name: "opencode",
        title: "OpenCode",
        install: "npm install -g opencode-ai",
        hosts: &["@anthropic", "@gemini", "@openai"],
        keys: &["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"],
        key_as: None,
        choices: &[],
        variables: &[("OPENCODE_DISABLE_AUTOUPDATE", "1")],
        arguments: &[],
        state: &[".local/share/opencode", ".local/state/opencode"],
        login: &[(".local/share/opencode", "auth.json")],
        settings: &[".config/opencode"],
        first: None,
    },
    CodingAgent {
        name: "goose",
        title: "goose",
        install: "the installer of https://block.github.io/goose",
        hosts: &["@anthropic", "@gemini", "@openai"],
        keys: &["ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"],
        key_as: None,
        choices: &["GOOSE_MODEL", "GOOSE_PROVIDER"],
        variables: &[("GOOSE_DISABLE_KEYRING", "1")],
        arguments: &[],
        state: &[".local/share/goose", ".local/state/goose"],
        login: &[],
        settings: &[".config/goose"],
        first: None,
    },
];

/// The agent that a program is, where it is one.
pub(crate) fn agent_of(argv: &[String]) -> Option<&'static CodingAgent> {
    let name = argv.first()?.rsplit('/').next()?;
    AGENTS.iter().find(|agent| agent.name == name)
}

/// The agent of this name.
///
/// # Errors
/// There is none, with the ones that there are and the one that was probably meant.
pub(crate) fn agent(name: &str) -> Result<&'static CodingAgent, String> {
    let names = || AGENTS.iter().map(|agent| agent.name);
    if let Some(agent) = AGENTS.iter().find(|agent| agent.name == name) {
        return Ok(agent);
    }
    let list = names().collect::<Vec<_>>().join(", ");
    let unknown = format!("`{}` is none of the agents {list}", cofferdam_policy::text::one_line(name));
    Err(match closest(&name.to_lowercase(), names()) {
        Some(meant) => format!("{unknown}; did you mean `{meant}`?\nhint: cofferdam agent {meant}"),
        None => format!("{unknown}\nhint: cofferdam run --here --for agent -t -e KEY PROGRAM, for another agent"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_an_agent_in_and_what_it_begins_with_lies_in_its_state() {
        for agent in AGENTS {
            for (directory, file) in agent.login {
                assert!(agent.state.contains(directory) && !file.contains('/'), "{}: {directory}/{file}", agent.name);
            }
            assert!(
                agent.first.is_none_or(|(directory, file, _)| agent.state.contains(&directory) && !file.contains('/')),
                "{}",
                agent.name
            );
            assert!(agent.settings.iter().all(|path| !agent.login.iter().any(|(d, f)| *path == format!("{d}/{f}"))));
        }
    }

    #[test]
    fn an_unknown_agent_is_answered_with_the_one_that_was_meant() {
        assert!(agent("clade").unwrap_err().contains("did you mean `claude`?\nhint: cofferdam agent claude"));
        assert!(agent("Codex").unwrap_err().contains("did you mean `codex`?"));
        assert!(agent("something").unwrap_err().contains("hint: cofferdam run --here --for agent"));
    }
}

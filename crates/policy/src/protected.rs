//! The two built-in path lists: what nobody may change, and what nobody may see.
//!
//! One source for every backend and every front end. A list says what is in it and nothing about how it is held.

/// Paths that can be read but never written, created, replaced or removed, relative to the root of every
/// writable mount: what a shell, git, an editor, an agent, a package manager or a session would execute or obey
/// later, outside the sandbox, and where credentials are kept.
///
/// An entry that is a directory on the host protects everything under it. Normalized, sorted inside each
/// group, no entry under another one.
pub const PROTECTED_DEFAULT: &[&str] = &[
    // Read by shells when they start or end.
    ".bash_aliases",
    ".bash_completion",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cargo/env",
    ".config/direnv",
    ".config/elvish",
    ".config/fish",
    ".config/nushell",
    ".config/starship.toml",
    ".config/xonsh",
    ".cshrc",
    ".fish",
    ".inputrc",
    ".kshrc",
    ".login",
    ".mkshrc",
    ".nvm/nvm.sh",
    ".oh-my-zsh",
    ".profile",
    ".tcshrc",
    ".xonshrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zsh",
    ".zshenv",
    ".zshrc",
    // Loaded per directory by shells.
    ".autoenv.zsh",
    ".direnv",
    ".envrc",
    ".mise",
    ".mise.local.toml",
    ".mise.toml",
    ".rvmrc",
    ".tool-versions",
    "mise.local.toml",
    "mise.toml",
    // Version control: what it runs, and what says where that is looked for. A `HEAD` at the top makes the directory itself a
    // repository, with the `config` beside it.
    ".arcconfig",
    ".bzr/branch/branch.conf",
    ".config/git",
    ".config/jj",
    ".fslckout",
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/modules",
    ".gitconfig",
    ".githooks",
    ".gitmodules",
    ".hg/hgrc",
    ".hg/hgrc-not-shared",
    ".hg/requires",
    ".hg/sharedpath",
    ".hgrc",
    ".hgsub",
    ".husky",
    ".jj/repo/config-id",
    ".jj/repo/config.toml",
    ".jj/repo/store/git/commondir",
    ".jj/repo/store/git/config",
    ".jj/repo/store/git/config.worktree",
    ".jj/repo/store/git/hooks",
    ".jj/repo/store/git_target",
    ".jj/repo/store/type",
    ".jj/workspace-config-id",
    ".jj/workspace-config.toml",
    ".lefthook.yml",
    ".lintstagedrc",
    ".lintstagedrc.json",
    ".overcommit.yml",
    ".pijul/config",
    ".pre-commit-config.yaml",
    ".sl/config",
    ".sl/hgrc-not-shared",
    ".sl/requires",
    ".sl/sharedpath",
    ".svn",
    "HEAD",
    "_FOSSIL_",
    "_darcs/prefs",
    "lefthook.yml",
    // Editors and their project files.
    ".atom",
    ".config/emacs",
    ".config/helix",
    ".config/kak",
    ".config/nvim",
    ".cursor-server",
    ".devcontainer",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".doom.d",
    ".emacs",
    ".emacs.d",
    ".exrc",
    ".fleet",
    ".helix",
    ".idea",
    ".lvimrc",
    ".nvim.lua",
    ".nvimrc",
    ".vim",
    ".vimrc",
    ".vs",
    ".vscode",
    ".vscode-server",
    ".zed",
    // Agents.
    ".agents",
    ".aider.conf.yml",
    ".amazonq",
    ".augment",
    ".claude",
    ".cline",
    ".clinerules",
    ".codex",
    ".config/opencode",
    ".continue",
    ".crush.json",
    ".cursor",
    ".cursorrules",
    ".factory",
    ".gemini",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/prompts",
    ".goosehints",
    ".junie",
    ".kiro",
    ".mcp.json",
    ".opencode",
    ".qoder",
    ".qwen",
    ".roo",
    ".roomodes",
    ".rules",
    ".trae",
    ".windsurf",
    ".windsurfrules",
    "AGENTS.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
    "GEMINI.md",
    "QWEN.md",
    "crush.json",
    "opencode.json",
    "opencode.jsonc",
    // Debuggers and terminal multiplexers, which run what these files say.
    ".byobu",
    ".config/tmux",
    ".config/wezterm",
    ".config/zellij",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".screenrc",
    ".tmux.conf",
    ".wezterm.lua",
    // Started with the user's session.
    ".config/autostart",
    ".config/environment.d",
    ".config/hypr",
    ".config/i3",
    ".config/plasma-workspace",
    ".config/sway",
    ".config/systemd",
    ".gnomerc",
    ".local/share/applications",
    ".local/share/dbus-1",
    ".local/share/systemd",
    ".pam_environment",
    ".xinitrc",
    ".xprofile",
    ".xserverrc",
    ".xsession",
    ".xsessionrc",
    // Package managers: where code comes from, with which token.
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".condarc",
    ".config/pip",
    ".npmrc",
    ".pip",
    ".pnpmfile.cjs",
    ".pypirc",
    ".yarnrc",
    ".yarnrc.yml",
    // Network clients.
    ".curlrc",
    ".netrc",
    ".wgetrc",
    // Credentials.
    ".aws",
    ".azure",
    ".config/containers",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".password-store",
    ".ssh",
    // Interpreters and clients that run their start-up file.
    ".Rprofile",
    ".ghci",
    ".ipython",
    ".irbrc",
    ".julia/config",
    ".jupyter",
    ".lessfilter",
    ".mailcap",
    ".mongorc.js",
    ".mongoshrc.js",
    ".octaverc",
    ".pryrc",
    ".psqlrc",
    ".pythonrc",
    ".sqliterc",
    // Build tools and continuous integration: options, wrappers and jobs that a person starts without reading them.
    ".bazeliskrc",
    ".bazelrc",
    ".circleci",
    ".config/go",
    ".github/actions",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".mvn",
    "bunfig.toml",
    "rust-toolchain",
    "rust-toolchain.toml",
    // Cofferdam's own: profiles, environments, skills, compiled policies, the audit trail.
    ".config/cofferdam",
    ".local/share/cofferdam",
    ".local/state/cofferdam",
    ".omni",
];

/// Credentials that the `host` root view does not show: relative entries lie in the user's home, absolute ones
/// are meant as they stand. Normalized, no entry under another one.
///
/// `.npmrc` and `.pypirc` are in: they hold registry tokens, and code that needs a registry gets it by policy.
pub const CREDENTIAL_DENY: &[&str] = &[
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/BraveSoftware",
    ".config/chromium",
    ".config/containers",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/hub",
    ".config/microsoft-edge",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".docker",
    ".electrum",
    ".ethereum",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".m2/settings.xml",
    ".mozilla",
    ".my.cnf",
    ".mysql_history",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".psql_history",
    ".pypirc",
    ".python_history",
    ".s3cfg",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".thunderbird",
    ".vault-token",
    ".yarnrc.yml",
    ".zsh_history",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
];

/// Paths that are protected where they exist and another path is protected: `(that one, this one)`. Their directories are
/// also used for other things, and so the names may be made where they are missing.
pub const PROTECTED_COMPANIONS: &[(&str, &str)] = &[
    (".bazelrc", "tools/bazel"),
    (".mvn", "gradle/wrapper"),
    (".yarnrc.yml", ".yarn/plugins"),
    (".yarnrc.yml", ".yarn/releases"),
    (".yarnrc.yml", ".yarn/sdks"),
];

/// [`CREDENTIAL_DENY`] as absolute paths for a user whose home is `home` (absolute, normalized).
pub fn credential_deny(home: &str) -> impl Iterator<Item = String> {
    let home = home.strip_suffix('/').unwrap_or(home);
    CREDENTIAL_DENY.iter().map(move |entry| match entry.strip_prefix('/') {
        Some(_) => (*entry).to_owned(),
        None => format!("{home}/{entry}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::{PathSet, fault};

    #[test]
    fn the_lists_are_normalized_and_say_nothing_twice() {
        for list in [PROTECTED_DEFAULT, CREDENTIAL_DENY] {
            let set: PathSet = list.iter().copied().collect();
            assert_eq!(set.len(), list.len());
            assert_eq!(set.outermost(), set);
            assert!(list.iter().all(|entry| fault(entry).is_none()));
        }
        assert!(PROTECTED_DEFAULT.iter().all(|entry| !entry.starts_with('/')));
        for (with, path) in PROTECTED_COMPANIONS {
            assert!(PROTECTED_DEFAULT.contains(with) && fault(path).is_none() && !path.starts_with('/'));
        }
    }

    #[test]
    fn the_page_has_every_protected_name() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protected.md");
        let text = std::fs::read_to_string(page).expect("docs/protected.md can be read");
        let missing: Vec<_> = PROTECTED_DEFAULT.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/protected.md does not name {missing:?}");
    }

    #[test]
    fn credentials_are_found_in_any_home() {
        let denied: Vec<String> = credential_deny("/home/u").collect();
        assert!(denied.contains(&"/home/u/.ssh".into()) && denied.contains(&"/etc/shadow".into()));
        assert!(credential_deny("/").any(|path| path == "/.ssh"));
    }
}

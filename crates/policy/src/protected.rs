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
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/fish",
    ".cshrc",
    ".fish",
    ".inputrc",
    ".kshrc",
    ".login",
    ".mkshrc",
    ".oh-my-zsh",
    ".profile",
    ".tcshrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    // Loaded per directory by shells.
    ".envrc",
    ".mise.toml",
    // Programs that git and its peers run, and where they are told to.
    ".config/git",
    ".config/jj",
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/modules",
    ".gitconfig",
    ".gitmodules",
    ".hg/hgrc",
    ".hgrc",
    ".husky",
    ".jj/repo/config.toml",
    // Editors and their project files.
    ".atom",
    ".config/nvim",
    ".devcontainer",
    ".emacs",
    ".emacs.d",
    ".exrc",
    ".idea",
    ".nvim.lua",
    ".vim",
    ".vimrc",
    ".vscode",
    ".zed",
    // Agents.
    ".aider.conf.yml",
    ".claude",
    ".codex",
    ".cursor",
    ".cursorrules",
    ".gemini",
    ".mcp.json",
    ".windsurf",
    // Debuggers and terminal multiplexers, which run what these files say.
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".screenrc",
    ".tmux.conf",
    // Started with the user's session.
    ".config/autostart",
    ".config/environment.d",
    ".config/systemd",
    ".local/share/systemd",
    ".pam_environment",
    ".xinitrc",
    ".xprofile",
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
    }

    #[test]
    fn credentials_are_found_in_any_home() {
        let denied: Vec<String> = credential_deny("/home/u").collect();
        assert!(denied.contains(&"/home/u/.ssh".into()) && denied.contains(&"/etc/shadow".into()));
        assert!(credential_deny("/").any(|path| path == "/.ssh"));
    }
}

//! Environment variables that contain secrets, or that make a program load other code.
//!
//! One source for every front end that passes variables on. Only the lists, not their use.

/// Variables that hold credentials, or lead to who holds them, by their whole names.
pub(crate) const SENSITIVE_VARIABLES: &[&str] = &[
    "BEARER",
    "CI_JOB_JWT",
    "CONSUL_HTTP_AUTH",
    "DATABASE_URL",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "GPG_AGENT_INFO",
    "GPG_TTY",
    "JWT",
    "KRB5CCNAME",
    "KUBECONFIG",
    "MONGODB_URI",
    "MYSQL_PWD",
    "NETRC",
    "PGPASSFILE",
    "REDIS_URL",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "SUDO_ASKPASS",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];

/// Parts of names, in capitals, that credentials have wherever they come from.
pub(crate) const SENSITIVE_PARTS: &[&str] = &[
    "ACCESS_KEY",
    "APIKEY",
    "API_KEY",
    "AUTH_",
    "CONNECTION_STRING",
    "COOKIE",
    "CREDENTIAL",
    "ENCRYPTION_KEY",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PRIVATE_KEY",
    "SECRET",
    "SIGNING_KEY",
    "TOKEN",
    "WEBHOOK",
    "_AUTH",
    "_DSN",
    "_JWT",
    "_PASS",
];

/// What names of credentials end in, in capitals.
pub(crate) const SENSITIVE_ENDINGS: &[&str] = &["_KEY", "_KEYS", "_PAT", "_PEM", "_PW", "_PWD", "_SK"];

/// Variables that make a loader, a shell or an interpreter run something else, or tell a program whom to start, by their
/// whole names.
pub(crate) const STEERING_VARIABLES: &[&str] = &[
    "AWKLIBPATH",
    "AWKPATH",
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_ENCODED_RUSTFLAGS",
    "CDPATH",
    "CLASSPATH",
    "COMPILER_PATH",
    "CURL_HOME",
    "DOTNET_STARTUP_HOOKS",
    "EDITOR",
    "ELECTRON_RUN_AS_NODE",
    "ENV",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_ZFLAGS",
    "EXINIT",
    "FZF_DEFAULT_COMMAND",
    "GCC_EXEC_PREFIX",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "GNUMAKEFLAGS",
    "GOENV",
    "GOFLAGS",
    "GRADLE_OPTS",
    "HGRCPATH",
    "HOSTALIASES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCPATH",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "MAVEN_OPTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NPM_CONFIG_NODE_OPTIONS",
    "NPM_CONFIG_SCRIPT_SHELL",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PAGER",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RIPGREP_CONFIG_PATH",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "R_PROFILE",
    "R_PROFILE_USER",
    "SHELLOPTS",
    "SSLKEYLOGFILE",
    "TAR_OPTIONS",
    "VIMINIT",
    "VISUAL",
    "WGETRC",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// What names of such variables begin with.
pub(crate) const STEERING_PREFIXES: &[&str] =
    &["BASH_FUNC_", "CARGO_TARGET_", "DYLD_", "GIT_", "LD_", "LUA_INIT_", "MALLOC_", "PERL", "RUBY"];

/// Those that begin so and steer nothing: who commits and when, and where builds go.
pub(crate) const HARMLESS_VARIABLES: &[&str] = &[
    "CARGO_TARGET_DIR",
    "GIT_AUTHOR_DATE",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_DATE",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
];

/// Whether a variable is stripped before it reaches unvetted code: it is on a list, its name looks like a credential's
/// in any case, or its value is a URL with a password.
pub fn is_stripped(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if HARMLESS_VARIABLES.contains(&upper.as_str()) {
        return has_password(value);
    }
    SENSITIVE_VARIABLES.contains(&upper.as_str())
        || STEERING_VARIABLES.contains(&upper.as_str())
        || SENSITIVE_PARTS.iter().any(|part| upper.contains(part))
        || SENSITIVE_ENDINGS.iter().any(|ending| upper.ends_with(ending))
        || STEERING_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || has_password(value)
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_steering_go_and_the_rest_stays() {
        for name in
            ["AWS_SECRET_ACCESS_KEY", "github_token", "NPM_CONFIG__AUTH", "LD_PRELOAD", "GIT_SSH_COMMAND", "ENV"]
        {
            assert!(is_stripped(name, "x"), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "PWD", "CARGO_HOME", "GIT_AUTHOR_NAME", "TZ", "KEYBOARD", "AUTHOR"] {
            assert!(!is_stripped(name, "x"), "{name}");
        }
        for name in
            ["STRIPE_SK", "gcp_key", "DEPLOY_KEYS", "GITHUB_PAT", "TLS_PEM", "DB_PWD", "AZURE_CONNECTION_STRING"]
        {
            assert!(is_stripped(name, "x"), "{name}");
        }
        for name in ["JWT", "SLACK_WEBHOOK_URL", "_JAVA_OPTIONS", "npm_config_script_shell", "CARGO_TARGET_X86_RUNNER"]
        {
            assert!(is_stripped(name, "x"), "{name}");
        }
        for name in ["XKB_KEYBOARD", "OLDPWD", "INIT_CWD", "CARGO_TARGET_DIR", "MAKE", "CC", "DISPLAY", "KEY"] {
            assert!(!is_stripped(name, "x"), "{name}");
        }
        assert!(is_stripped("MIRROR", "https://me:word@mirror.example/x"));
        assert!(!is_stripped("MIRROR", "https://mirror.example/a:b@c"));
        assert!(is_stripped("GIT_AUTHOR_NAME", "https://me:word@mirror.example"));
    }

    #[test]
    fn the_lists_are_sorted_and_in_capitals() {
        for list in [SENSITIVE_VARIABLES, SENSITIVE_PARTS, SENSITIVE_ENDINGS, STEERING_PREFIXES, HARMLESS_VARIABLES] {
            assert!(list.is_sorted(), "{list:?}");
            assert!(list.iter().all(|name| *name == name.to_ascii_uppercase()));
        }
        assert!(STEERING_VARIABLES.iter().all(|name| *name == name.to_ascii_uppercase()));
    }
}

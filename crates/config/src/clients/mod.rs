//! The configuration files of MCP clients: the path of each, and the entry of a server in it.
//!
//! Pure: returns paths and texts, and reads and writes nothing. `jsonc` edits a text and leaves the rest of it unchanged.

mod jsonc;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_policy::BaseDirectory;
use serde_json::{Value, json};

pub use jsonc::{EditError, removed, with};

/// An MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpClient {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Zed.
    Zed,
}

/// The names of [`McpClient::ALL`], in the same order.
pub const NAMES: [&str; 5] = ["claude-desktop", "claude-code", "cursor", "vscode", "zed"];

/// The operating system that the client runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Linux and other Unix systems.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl Platform {
    /// The system that this program was built for.
    pub const fn here() -> Platform {
        if cfg!(target_os = "macos") {
            Platform::MacOs
        } else if cfg!(windows) {
            Platform::Windows
        } else {
            Platform::Linux
        }
    }
}

impl McpClient {
    /// All clients.
    pub const ALL: [McpClient; 5] =
        [McpClient::ClaudeDesktop, McpClient::ClaudeCode, McpClient::Cursor, McpClient::VsCode, McpClient::Zed];

    /// The client of this name.
    pub fn from_name(name: &str) -> Option<McpClient> {
        NAMES.iter().position(|known| *known == name).map(|at| McpClient::ALL[at])
    }

    /// The user's configuration file; `None` without a home, or on Windows without `APPDATA`.
    pub fn user_file(
        self,
        platform: Platform,
        home: Option<&str>,
        variables: &BTreeMap<String, String>,
    ) -> Option<PathBuf> {
        let home = home.map(Path::new);
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let xdg = || BaseDirectory::Config.of(variable(BaseDirectory::Config.variable()), home);
        let applications = match platform {
            Platform::Linux => xdg(),
            Platform::MacOs => home.map(|home| home.join("Library/Application Support")),
            Platform::Windows => variable("APPDATA"),
        };
        match self {
            McpClient::ClaudeDesktop => Some(applications?.join("Claude").join("claude_desktop_config.json")),
            McpClient::ClaudeCode => Some(home?.join(".claude.json")),
            McpClient::Cursor => Some(home?.join(".cursor").join("mcp.json")),
            McpClient::VsCode => Some(applications?.join("Code").join("User").join("mcp.json")),
            McpClient::Zed => Some(
                match platform {
                    Platform::Windows => applications?.join("Zed"),
                    Platform::Linux => xdg()?.join("zed"),
                    Platform::MacOs => home?.join(".config/zed"),
                }
                .join("settings.json"),
            ),
        }
    }

    /// The configuration file of a project, relative to its directory; `None` if the client has none.
    pub fn project_file(self) -> Option<&'static str> {
        match self {
            McpClient::ClaudeDesktop => None,
            McpClient::ClaudeCode => Some(".mcp.json"),
            McpClient::Cursor => Some(".cursor/mcp.json"),
            McpClient::VsCode => Some(".vscode/mcp.json"),
            McpClient::Zed => Some(".zed/settings.json"),
        }
    }

    /// The key of the object with the servers.
    pub fn key(self) -> &'static str {
        match self {
            McpClient::ClaudeDesktop | McpClient::ClaudeCode | McpClient::Cursor => "mcpServers",
            McpClient::VsCode => "servers",
            McpClient::Zed => "context_servers",
        }
    }

    /// The files and directories by which the client is known to be installed; `file` is the user's configuration.
    pub fn signs(self, file: &Path) -> Vec<PathBuf> {
        let beside = file.parent().map(Path::to_path_buf);
        let directory = match self {
            McpClient::ClaudeCode => beside.map(|home| home.join(".claude")),
            _ => beside,
        };
        [file.to_owned()].into_iter().chain(directory).collect()
    }

    /// The entry of a server that the client starts as a program, with this PATH where one is given.
    pub fn entry(self, program: &str, arguments: &[String], path: Option<&str>) -> Value {
        let mut entry = match self {
            McpClient::ClaudeDesktop | McpClient::Cursor => json!({"command": program, "args": arguments}),
            McpClient::ClaudeCode | McpClient::VsCode => {
                json!({"type": "stdio", "command": program, "args": arguments})
            }
            McpClient::Zed => json!({"source": "custom", "command": program, "args": arguments, "env": {}}),
        };
        if let Some(path) = path {
            entry["env"] = json!({ "PATH": path });
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_file_on_each_platform() {
        let variables = |list: &[(&str, &str)]| {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let file = |client: McpClient, platform, list: &[(&str, &str)]| {
            let found = client.user_file(platform, Some("/home/u"), &variables(list));
            found.map(|path| path.to_str().unwrap().to_owned())
        };
        let (linux, mac, windows) = (Platform::Linux, Platform::MacOs, Platform::Windows);
        let is = |path: &str| Some(path.to_owned());
        assert_eq!(file(McpClient::ClaudeDesktop, linux, &[]), is("/home/u/.config/Claude/claude_desktop_config.json"));
        assert_eq!(file(McpClient::VsCode, linux, &[("XDG_CONFIG_HOME", "/x")]), is("/x/Code/User/mcp.json"));
        assert_eq!(
            file(McpClient::Zed, linux, &[("XDG_CONFIG_HOME", "relative")]),
            is("/home/u/.config/zed/settings.json")
        );
        let library = "/home/u/Library/Application Support";
        assert_eq!(
            file(McpClient::ClaudeDesktop, mac, &[]),
            is(&format!("{library}/Claude/claude_desktop_config.json"))
        );
        assert_eq!(file(McpClient::VsCode, mac, &[]), is(&format!("{library}/Code/User/mcp.json")));
        assert_eq!(file(McpClient::Zed, mac, &[("XDG_CONFIG_HOME", "/x")]), is("/home/u/.config/zed/settings.json"));
        assert_eq!(file(McpClient::ClaudeDesktop, windows, &[]), None);
        assert_eq!(file(McpClient::Zed, windows, &[("APPDATA", "/app")]), is("/app/Zed/settings.json"));
        for platform in [linux, mac, windows] {
            assert_eq!(file(McpClient::ClaudeCode, platform, &[]), is("/home/u/.claude.json"));
            assert_eq!(file(McpClient::Cursor, platform, &[]), is("/home/u/.cursor/mcp.json"));
        }
        assert_eq!(McpClient::ClaudeCode.user_file(linux, None, &variables(&[])), None);
        for (name, client) in NAMES.iter().zip(McpClient::ALL) {
            assert_eq!(McpClient::from_name(name), Some(client));
        }
    }
}

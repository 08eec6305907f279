//! `cofferdam mcp install`: each client's configuration gets the server, keeps everything else, and loses it again.

mod common;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

struct Home(tempfile::TempDir);

const CLIENTS: [(&str, &str, &str, Option<&str>); 5] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers", None),
    ("claude-code", ".claude.json", "mcpServers", Some(".mcp.json")),
    ("cursor", ".cursor/mcp.json", "mcpServers", Some(".cursor/mcp.json")),
    ("vscode", ".config/Code/User/mcp.json", "servers", Some(".vscode/mcp.json")),
    ("zed", ".config/zed/settings.json", "context_servers", Some(".zed/settings.json")),
];

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path("project")).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn install(&self, client: &str, options: &[&str]) -> Output {
        let mut command = common::cofferdam();
        command.env("HOME", self.0.path()).env_remove("XDG_CONFIG_HOME").current_dir(self.path("project"));
        command.args(["mcp", "install", "--client", client]).args(options).output().unwrap()
    }

    #[track_caller]
    fn done(&self, client: &str, options: &[&str]) -> String {
        let output = self.install(client, options);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{client}: {message}");
        message
    }

    #[track_caller]
    fn refused(&self, client: &str, options: &[&str]) -> String {
        let output = self.install(client, options);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn server_is_installed_and_removed_for_each_client() {
    let home = Home::new();
    let own = std::fs::canonicalize(env!("CARGO_BIN_EXE_cofferdam")).unwrap();
    for (client, file, key, _) in CLIENTS {
        let message = home.done(client, &["--yes", "--config", "e.toml"]);
        assert!(
            message.contains("+ ") && message.contains("\"cofferdam\"") && message.contains("is written"),
            "{message}"
        );
        let entry = home.json(file)[key]["cofferdam"].clone();
        assert_eq!(std::fs::canonicalize(entry["command"].as_str().unwrap()).unwrap(), own);
        let config = std::fs::canonicalize(home.path("project")).unwrap().join("e.toml");
        assert_eq!(entry["args"], json!(["mcp", "--config", config]));
        assert!(home.done(client, &["--yes", "--config", "e.toml"]).contains("nothing to change"));
        home.done(client, &["--yes", "--remove"]);
        assert_eq!(home.json(file), json!({}), "nothing is left of it");
        assert!(home.done(client, &["--yes", "--remove"]).contains("nothing to change"));
    }
    assert_eq!(home.names("project"), [] as [&str; 0]);
}

#[test]
fn project_config_names_no_path_of_this_machine() {
    let home = Home::new();
    for (client, _, key, file) in CLIENTS {
        let Some(file) = file else {
            assert!(home.refused(client, &["--yes", "--project"]).contains("hint: leave out --project"));
            continue;
        };
        home.done(client, &["--yes", "--project"]);
        let entry = home.json(&format!("project/{file}"))[key]["cofferdam"].clone();
        assert_eq!((&entry["command"], &entry["args"]), (&json!("cofferdam"), &json!(["mcp"])));
    }
    assert_eq!(home.names("."), ["project"]);
}

#[test]
fn comments_and_other_servers_stay_and_the_file_before_is_kept() {
    let home = Home::new();
    let file = ".config/zed/settings.json";
    let text = "// mine\n{\n\t\"theme\": \"One\", // dark\n\t\"context_servers\": {\n\t\t\"other\": {\"command\": \"x\"}, // kept\n\t},\n}\n";
    std::fs::create_dir_all(home.path(".config/zed")).unwrap();
    std::fs::write(home.path(file), text).unwrap();
    std::fs::set_permissions(home.path(file), std::fs::Permissions::from_mode(0o640)).unwrap();
    let dry = home.install("zed", &["--dry-run"]);
    assert!(String::from_utf8_lossy(&dry.stdout).contains("\n+         \"cofferdam\": {\n"), "{dry:?}");
    assert_eq!((home.text(file).as_str(), home.names(".config/zed").len()), (text, 1), "nothing is written");
    // Without a terminal the caller cannot be asked, and nothing is written.
    assert!(home.refused("zed", &[]).contains("hint: --yes"));
    assert_eq!(home.text(file), text);
    home.done("zed", &["-y"]);
    let new = home.text(file);
    assert!(
        new.starts_with("// mine\n{\n\t\"theme\": \"One\", // dark\n")
            && new.contains("}, // kept\n\t\t\"cofferdam\": {"),
        "{new}"
    );
    assert_eq!(home.names(".config/zed"), ["settings.json", "settings.json.backup-1"]);
    assert_eq!(home.text(&format!("{file}.backup-1")), text);
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(&format!("{file}.backup-1"))), (0o640, 0o640));
    home.done("zed", &["-y", "--remove"]);
    assert_eq!(home.text(file), text);
    assert_eq!(home.text(&format!("{file}.backup-2")), new);
}

#[test]
fn a_link_of_ones_own_is_followed_and_stays_a_link() {
    let home = Home::new();
    std::fs::create_dir(home.path("dotfiles")).unwrap();
    std::fs::write(home.path("dotfiles/claude.json"), "{\"numStartups\": 5}\n").unwrap();
    symlink(home.path("dotfiles/claude.json"), home.path(".claude.json")).unwrap();
    home.done("claude-code", &["-y"]);
    assert!(std::fs::symlink_metadata(home.path(".claude.json")).unwrap().is_symlink());
    assert_eq!(home.json("dotfiles/claude.json")["numStartups"], 5);
    assert_eq!(home.json("dotfiles/claude.json")["mcpServers"]["cofferdam"]["type"], "stdio");
    if common::is_root() {
        use std::os::unix::fs::lchown;
        lchown(home.path(".claude.json"), Some(65534), Some(65534)).unwrap();
        assert!(home.refused("claude-code", &["-y", "--remove"]).contains("a link that another user made"));
    }
}

#[test]
fn a_link_in_the_place_of_a_backup_is_neither_followed_nor_replaced() {
    let home = Home::new();
    std::fs::write(home.path(".claude.json"), "{\r\n}\r\n").unwrap();
    symlink("elsewhere", home.path(".claude.json.backup-1")).unwrap();
    home.done("claude-code", &["-y"]);
    assert_eq!(std::fs::read_link(home.path(".claude.json.backup-1")).unwrap(), PathBuf::from("elsewhere"));
    assert!(!home.path("elsewhere").exists());
    assert_eq!(home.text(".claude.json.backup-2"), "{\r\n}\r\n");
    let new = home.text(".claude.json");
    assert!(new.lines().count() > 3 && !new.replace("\r\n", "").contains('\n'), "{new:?}");
}

#[test]
fn uneditable_config_is_left_unchanged() {
    let home = Home::new();
    let file = home.path(".claude.json");
    for (text, word) in [
        ("{\"mcpServers\": []}", "\"mcpServers\" is no object"),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", "stands twice"),
        ("{\n\"a\" 1}", "line 2: a colon is expected"),
        ("[]", "is no object"),
    ] {
        std::fs::write(&file, text).unwrap();
        let message = home.refused("claude-code", &["-y"]);
        assert!(message.contains(word) && message.contains("hint: correct the file"), "{message}");
        assert_eq!(home.text(".claude.json"), text);
    }
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert!(home.refused("claude-code", &["-y"]).contains("no regular file"));
    assert!(home.refused("claude-code", &["-y", "--name", "../x"]).contains("no name of a server"));
    assert_eq!(home.install("emacs", &["-y"]).status.code(), Some(125));
    assert_eq!(home.names("."), [".claude.json", "project"]);
}

#[test]
fn server_that_cannot_start_is_reported_at_once() {
    let home = Home::new();
    let message = home.done("cursor", &["-y", "--config", "none.toml"]);
    assert!(message.contains("project/none.toml is not there\nhint: config.example.toml"), "{message}");
    std::fs::write(home.path("project/there.toml"), "").unwrap();
    std::fs::create_dir(home.path("empty")).unwrap();
    let libexec = |directory: PathBuf| {
        let mut command = common::cofferdam();
        command.env("HOME", home.0.path()).env_remove("XDG_CONFIG_HOME").current_dir(home.path("project"));
        command.env("COFFERDAM_LIBEXEC", directory);
        let output = command.args(["mcp", "install", "--client", "cursor", "-y", "--config", "there.toml"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let message = libexec(home.path("empty"));
    assert!(message.contains("cannot start yet: ") && message.contains("hint: cofferdam-serve belongs"), "{message}");
    assert!(!message.contains("there.toml is not there"), "{message}");
    assert!(home.text(".cursor/mcp.json").contains("there.toml"));
    std::fs::remove_file(home.path(".cursor/mcp.json")).unwrap();
    std::fs::write(home.path("empty/cofferdam-serve"), "").unwrap();
    assert!(!libexec(home.path("empty")).contains("cannot start"));
}

//! What the host view shows of a home: no credentials, histories or data of applications, and what programs need.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use common::{Shown, cofferdam, is_root, shown_directory};

/// Well-known files with secrets, relative to a home.
const SECRETS: &[&str] = &[
    ".ICEauthority",
    ".Xauthority",
    ".aider.conf.yml",
    ".aliyun/config.json",
    ".ansible/vault_pass",
    ".authinfo",
    ".bitcoin/wallet.dat",
    ".bitmonero/x",
    ".bluemix/x",
    ".boto",
    ".bundle/config",
    ".cache/google-chrome/x",
    ".cache/huggingface/token",
    ".cache/mozilla/x",
    ".cargo/config.toml",
    ".cassandra/credentials",
    ".cf/config.json",
    ".composer/auth.json",
    ".condarc",
    ".config/Bitwarden/data.json",
    ".config/Code/User/globalStorage/state.vscdb",
    ".config/Cursor/User/globalStorage/state.vscdb",
    ".config/Exodus/x",
    ".config/Signal/config.json",
    ".config/Slack/Cookies",
    ".config/age/keys.txt",
    ".config/composer/auth.json",
    ".config/configstore/update.json",
    ".config/discord/Cookies",
    ".config/evolution/x",
    ".config/filezilla/sitemanager.xml",
    ".config/firebase/x",
    ".config/git/config",
    ".config/github-copilot/apps.json",
    ".config/github-copilot/hosts.json",
    ".config/glab-cli/config.yml",
    ".config/hcloud/cli.toml",
    ".config/heroku/x",
    ".config/hexchat/x",
    ".config/k9s/x",
    ".config/keepassxc/x",
    ".config/linode-cli",
    ".config/ngrok/ngrok.yml",
    ".config/nix/nix.conf",
    ".config/openstack/clouds.yaml",
    ".config/opera/Cookies",
    ".config/pip/pip.conf",
    ".config/pypoetry/auth.toml",
    ".config/scw/config.yaml",
    ".config/solana/id.json",
    ".config/stripe/config.toml",
    ".config/teamviewer/x",
    ".config/vivaldi/Cookies",
    ".config/xsel",
    ".config/zed/x",
    ".curlrc",
    ".cursor/mcp.json",
    ".databrickscfg",
    ".dbshell",
    ".dbt/profiles.yml",
    ".env",
    ".expo/state.json",
    ".firebase/x",
    ".fly/config.yml",
    ".gemini/oauth_creds.json",
    ".gitconfig",
    ".gitcookies",
    ".gradle/gradle.properties",
    ".history",
    ".huggingface/token",
    ".irssi/config",
    ".ivy2/.credentials",
    ".kaggle/kaggle.json",
    ".lesshst",
    ".local/share/TelegramDesktop/tdata/x",
    ".local/share/atuin/history.db",
    ".local/share/com.vercel.cli/auth.json",
    ".local/share/containers/auth.json",
    ".local/share/direnv/x",
    ".local/share/evolution/x",
    ".local/share/fish/fish_history",
    ".local/share/jupyter/runtime/kernel.json",
    ".local/share/opencode/auth.json",
    ".local/share/remmina/x",
    ".m2/repository/x",
    ".m2/settings-security.xml",
    ".minikube/client.key",
    ".monero/x",
    ".mongodb/x",
    ".msmtprc",
    ".node_repl_history",
    ".nuget/NuGet/NuGet.Config",
    ".oci/config",
    ".pip/pip.conf",
    ".pki/nssdb/key4.db",
    ".pulumi/credentials.json",
    ".purple/accounts.xml",
    ".rediscli_history",
    ".remmina/x",
    ".sbt/.credentials",
    ".sentryclirc",
    ".sh_history",
    ".smbcredentials",
    ".snowsql/config",
    ".sqlite_history",
    ".subversion/auth/svn.simple/x",
    ".tencentcloudcli/x",
    ".terraformrc",
    ".var/app/org.mozilla.firefox/x",
    ".viminfo",
    ".wgetrc",
    ".nvm/versions/node/v20.1.0/etc/npmrc",
    ".npm-packages/etc/npmrc",
    ".volta/tools/image/node/20.1.0/etc/npmrc",
    ".local/share/fnm/node-versions/v20/installation/etc/npmrc",
    ".local/share/mise/installs/node/20/etc/npmrc",
    ".venvs/one/pip.conf",
    ".virtualenvs/two/pip.conf",
    ".local/share/pipx/venvs/tool/pip.conf",
    ".pyenv/versions/3.11/pip.conf",
    ".conda/envs/three/.condarc",
    ".conda/condarc",
    "miniconda3/.condarc",
    "miniconda3/envs/four/.condarc",
    ".opam/plugins/opam-publish/x.token",
    "snap/firefox/common/.mozilla/firefox/logins.json",
];

/// What stays readable: ordinary files, toolchains, programs that a user installed, caches.
const SHOWN: &[&str] = &[
    "notes.txt",
    "project/.env",
    ".cargo/bin/tool",
    ".cargo/registry/index",
    ".rustup/settings.toml",
    ".pyenv/version",
    ".nvm/nvm.sh",
    ".nvm/versions/node/v20.1.0/bin/node",
    ".venvs/one/pyvenv.cfg",
    "miniconda3/envs/four/bin/python",
    ".local/bin/tool",
    ".local/lib/python3.11/site-packages/module.py",
    ".cache/pip/http",
    ".cache/huggingface/hub/model",
    ".npm/_cacache/index",
    ".config/git/ignore",
    ".tool-versions",
];

/// A home outside of what the host view replaces, removed when the test ends.
struct Home(Shown);

impl Home {
    /// `None` where this user can make none.
    fn new(name: &str) -> Option<Home> {
        let home = Home(shown_directory(name)?);
        for file in SECRETS.iter().chain(SHOWN) {
            home.plant(file);
        }
        Some(home)
    }

    fn plant(&self, file: &str) {
        let path = self.0.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("<{file}>")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn text(&self, below: &str) -> String {
        self.0.0.join(below).to_str().unwrap().trim_end_matches('/').to_owned()
    }

    /// The command with this home, as root and as a user where the test is root's.
    fn commands(&self) -> Vec<Command> {
        let command = || {
            let mut command = cofferdam();
            for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
                command.env_remove(name);
            }
            command.env("HOME", &self.0.0).env("PATH", "/usr/bin:/bin").current_dir("/");
            command
        };
        let mut commands = vec![command()];
        if is_root() {
            let mut user = command();
            user.uid(65534).gid(65534);
            commands.push(user);
        }
        commands
    }

    /// What of these files a program in the sandbox can read.
    fn read(&self, mut command: Command, arguments: &[&str], files: &[&str]) -> Vec<String> {
        let script = "for file do cat \"$file\" 2>/dev/null && echo; done; echo ran";
        command.args(["run", "-q"]).args(arguments).args(["--", "sh", "-c", script, "sh"]);
        let out = command.args(files.iter().map(|file| self.text(file))).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.ends_with("ran\n"), "{out:?}");
        text.lines().filter(|line| *line != "ran").map(|line| line.trim_matches(['<', '>']).to_owned()).collect()
    }
}

#[test]
fn well_known_secrets_are_hidden_and_needed_files_are_not() {
    let Some(home) = Home::new("secrets") else { return };
    for command in home.commands() {
        assert_eq!(home.read(command, &[], SECRETS), [""; 0]);
    }
    for command in home.commands() {
        assert_eq!(home.read(command, &[], SHOWN), SHOWN);
    }
    // The secrets are there: a volume of the home gives what no list names.
    let volume = format!("{0}:{0}", home.text(""));
    for command in home.commands() {
        let read = home.read(command, &["-v", &volume], &[".m2/repository/x", ".gitconfig", ".aws"]);
        assert_eq!(read, [".m2/repository/x"]);
    }
}

#[test]
fn workdir_and_volume_below_a_dot_directory_are_visible() {
    let Some(home) = Home::new("opened") else { return };
    for file in [".dots/work/file", ".dots/other/file", ".dots/work/.hidden"] {
        home.plant(file);
    }
    let files = [".dots/work/file", ".dots/work/.hidden", ".dots/other/file", ".m2/settings.xml", ".m2/repository/x"];
    for mut command in home.commands() {
        command.current_dir(home.0.0.join(".dots/work"));
        assert_eq!(home.read(command, &[], &files), [".dots/work/file", ".dots/work/.hidden"]);
    }
    let volume = format!("{0}:{0}", home.text(".m2/repository"));
    for command in home.commands() {
        assert_eq!(home.read(command, &["-v", &volume], &files), [".m2/repository/x"]);
    }
}

#[test]
fn a_link_of_a_project_on_path_opens_nothing_of_the_home() {
    let Some(home) = Home::new("path") else { return };
    for file in [".dots/tools/file", ".dots/other", "project/.venv/bin/x"] {
        home.plant(file);
    }
    let files = [".dots/tools/file", ".dots/other"];
    // The directory, a link in a project, which code inside can have made, and a link in the home, which it cannot, but to
    // another link in a project.
    let venv = home.0.0.join("project/.venv/bin");
    fs::remove_dir_all(&venv).unwrap();
    for (target, name) in [
        ("../../.dots/tools", "project/.venv/bin"),
        ("../.dots/tools", "project/bin"),
        ("../.dots", "project/dots"),
        (".dots/tools", "bin"),
        ("project/bin", "linked"),
        ("project/dots", "above"),
    ] {
        std::os::unix::fs::symlink(target, home.0.0.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(home.0.0.join(".dots/tools"), home.0.0.join("absolute")).unwrap();
    for (entry, shown) in [
        ("project/.venv/bin", &files[..0]),
        ("linked", &files[..0]),
        ("above", &files[..0]),
        ("above/tools", &files[..0]),
        ("bin", &files[..1]),
        ("absolute", &files[..1]),
        (".dots/tools", &files[..1]),
    ] {
        for mut command in home.commands() {
            command.env("PATH", format!("{}:/usr/bin:/bin", home.text(entry))).current_dir(home.0.0.join("project"));
            assert_eq!(home.read(command, &[], &files), shown, "{entry}");
        }
    }
}

#[test]
fn credentials_that_a_variable_moves_are_denied_where_they_are() {
    let Some(home) = Home::new("moved") else { return };
    let moved = [
        ("XDG_CONFIG_HOME", "moved/config", "moved/config/gh/hosts.yml"),
        ("KUBECONFIG", "moved/cluster", "moved/cluster"),
        ("AWS_SHARED_CREDENTIALS_FILE", "moved/aws", "moved/aws"),
        ("DOCKER_CONFIG", "moved/docker", "moved/docker/config.json"),
        ("GNUPGHOME", "moved/keys", "moved/keys/private"),
        ("CARGO_HOME", "moved/cargo", "moved/cargo/credentials.toml"),
        ("CABAL_DIR", "moved/cabal", "moved/cabal/config"),
        ("CIVOCONFIG", "moved/civo", "moved/civo"),
        ("DOCKER_CERT_PATH", "moved/certificates", "moved/certificates/key.pem"),
        ("GEMINI_CLI_HOME", "moved/gemini", "moved/gemini/.gemini/oauth_creds.json"),
        ("GOOSE_PATH_ROOT", "moved/goose", "moved/goose/config/secrets.yaml"),
        ("JULIA_DEPOT_PATH", "moved/julia", "moved/julia/servers/host/auth.toml"),
        ("JUPYTER_DATA_DIR", "moved/jupyter", "moved/jupyter/runtime/server.json"),
        ("RYE_HOME", "moved/rye", "moved/rye/credentials"),
        ("npm_config_cache", "moved/npm", "moved/npm/_logs/log"),
    ];
    for (_, _, file) in moved {
        home.plant(file);
    }
    home.plant("moved/cargo/bin/tool");
    let files: Vec<&str> = moved.iter().map(|(_, _, file)| *file).chain(["moved/cargo/bin/tool"]).collect();
    for mut command in home.commands() {
        for (name, value, _) in moved {
            command.env(name, home.0.0.join(value));
        }
        assert_eq!(home.read(command, &[], &files), ["moved/cargo/bin/tool"]);
    }
    // Control: without the variables they are ordinary files.
    for command in home.commands() {
        assert_eq!(home.read(command, &[], &files), files);
    }
}

/// `~` in a variable's value, which a shell leaves between quotes: some programs replace it, others do not.
#[test]
fn credentials_that_a_variable_moves_below_a_tilde_are_denied_in_the_home_and_here() {
    let Some(home) = Home::new("tilde") else { return };
    for file in ["keys/aws", "keys/plain", "here/~/keys/aws"] {
        home.plant(file);
    }
    let files = ["keys/aws", "keys/plain", "here/~/keys/aws"];
    for mut command in home.commands() {
        command.env("AWS_SHARED_CREDENTIALS_FILE", "~/keys/aws").current_dir(home.0.0.join("here"));
        assert_eq!(home.read(command, &[], &files), ["keys/plain"]);
    }
    for command in home.commands() {
        assert_eq!(home.read(command, &[], &files), files);
    }
}

/// Managers of dotfiles keep the files elsewhere, and links in the directories of applications.
#[test]
fn what_links_in_directories_of_credentials_lead_to_is_denied() {
    let Some(home) = Home::new("linked") else { return };
    for file in ["vault/aws", "vault/gh/hosts.yml", "vault/plain", "vault/key", "vault/moved", "work/file"] {
        home.plant(file);
    }
    for directory in [".aws", ".config/gh", ".ssh", "moved"] {
        fs::create_dir_all(home.0.0.join(directory)).unwrap();
    }
    let link = |target: &str, at: &str| {
        fs::remove_file(home.0.0.join(at)).ok();
        std::os::unix::fs::symlink(target, home.0.0.join(at)).unwrap();
    };
    link("../vault/aws", ".aws/credentials");
    link("../../vault/gh", ".config/gh/more");
    link("../vault/key", ".ssh/id");
    link("../vault/moved", "moved/file");
    link("../work", ".ssh/work");
    let files = ["vault/aws", "vault/gh/hosts.yml", "vault/plain", "vault/key", "vault/moved", "work/file"];
    let volume = format!("{0}:{0}", home.text(""));
    for arguments in [&[][..], &["-v", &volume]] {
        for mut command in home.commands() {
            // What contains the working directory stays.
            command.env("GNUPGHOME", home.0.0.join("moved")).current_dir(home.0.0.join("work"));
            assert_eq!(home.read(command, arguments, &files), ["vault/plain", "work/file"], "{arguments:?}");
        }
    }
    // Control: without the links they are ordinary files.
    for at in [".aws/credentials", ".config/gh/more", ".ssh/id", "moved/file", ".ssh/work"] {
        fs::remove_file(home.0.0.join(at)).unwrap();
    }
    for command in home.commands() {
        assert_eq!(home.read(command, &[], &files), files);
    }
}

/// A home that is named by a link, and in it the directory that holds the layers of hidden names.
#[test]
fn many_denied_names_are_hidden_in_a_home_that_a_link_names() {
    let Some(home) = Home::new("by-link") else { return };
    let many: Vec<String> = (0..200).map(|i| format!(".application-{i}")).collect();
    many.iter().for_each(|name| home.plant(name));
    fs::create_dir_all(home.0.0.join(".cache")).unwrap();
    fs::create_dir_all(home.0.0.join("run")).unwrap();
    fs::set_permissions(home.0.0.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        chown(home.0.0.join(".cache"), Some(65534), Some(65534)).unwrap();
        chown(home.0.0.join("run"), Some(65534), Some(65534)).unwrap();
    }
    let Some(names) = shown_directory("names") else { return };
    let by_link = names.0.join("home");
    std::os::unix::fs::symlink(&home.0.0, &by_link).unwrap();
    let files: Vec<&str> = many.iter().map(String::as_str).chain(["notes.txt", ".cargo/bin/tool"]).collect();
    let runtime = |base: &std::path::Path| Some(base.join("run"));
    for (home_directory, run) in
        [(&by_link, None), (&by_link, runtime(&by_link)), (&home.0.0, runtime(&by_link)), (&home.0.0, None)]
    {
        for mut command in home.commands() {
            command.env("HOME", home_directory).envs(run.iter().map(|run| ("XDG_RUNTIME_DIR", run)));
            let read = home.read(command, &[], &files);
            assert_eq!(read, ["notes.txt", ".cargo/bin/tool"], "{home_directory:?}, {run:?}");
        }
    }
}

#[test]
fn many_denied_names_are_hidden_without_a_mount_for_each() {
    let Some(home) = Home::new("many") else { return };
    let many: Vec<String> = (0..200).map(|i| format!(".application-{i}")).collect();
    many.iter().for_each(|name| home.plant(name));
    // Layers that hide names lie in a directory of the user's own.
    fs::create_dir_all(home.0.0.join(".cache")).unwrap();
    if is_root() {
        chown(home.0.0.join(".cache"), Some(65534), Some(65534)).unwrap();
    }
    let files: Vec<&str> = many.iter().map(String::as_str).chain(["notes.txt", ".cargo/bin/tool"]).collect();
    for command in home.commands() {
        assert_eq!(home.read(command, &[], &files), ["notes.txt", ".cargo/bin/tool"]);
    }
}

#[test]
fn a_code_file_that_a_link_makes_of_a_credential_is_refused() {
    let Some(home) = Home::new("code") else { return };
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, home.0.0.join(name)).unwrap();
    let plant = |file: &str| {
        home.plant(file);
        fs::write(home.0.0.join(file), "echo ran $0").unwrap();
    };
    for file in ["project/t.sh", ".config/unknown/token", ".cargo/bin/t.sh", "keys/id", ".moved/token", ".ssh/id_rsa"] {
        plant(file);
    }
    link("../.ssh/id_rsa", "project/key.sh");
    link("../.ssh", "project/directory");
    link("../.config/unknown/token", "project/token.sh");
    link("t.sh", "project/own.sh");
    link("../.cargo/bin/t.sh", "project/tool.sh");
    link("keys", ".gnupg");
    link("../.gnupg/id", "project/by-link.sh");
    link("../.moved/token", "project/moved.sh");
    let eval = |mut command: Command, file: &str| {
        command.env("KUBECONFIG", home.text(".moved/token"));
        let out = command.args(["eval", "shell", "--file", &home.text(file)]).output().unwrap();
        [out.stdout, out.stderr].concat().iter().map(|byte| char::from(*byte)).collect::<String>()
    };
    for file in [
        "project/key.sh",
        "project/directory/id_rsa",
        "project/token.sh",
        "project/by-link.sh",
        "project/moved.sh",
        ".ssh/id_rsa",
    ] {
        for command in home.commands() {
            let said = eval(command, file);
            assert!(
                said.contains("the code file") && said.contains("hint: ") && !said.contains("ran"),
                "{file}: {said}"
            );
        }
    }
    // Allowed: a link to the project's own file or to a tool, and what the person names.
    for file in ["project/own.sh", "project/t.sh", "project/tool.sh", ".config/unknown/token"] {
        for command in home.commands() {
            let said = eval(command, file);
            assert!(said.starts_with("ran"), "{file}: {said}");
        }
    }
}

#[test]
fn links_to_roots_and_into_credentials_show_no_more() {
    let Some(home) = Home::new("links") else { return };
    let secrets = [".aws/sso/cache/token", ".netrc", ".ssh/id_ed25519"];
    secrets.into_iter().chain(["work/file"]).for_each(|file| home.plant(file));
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, home.0.0.join(name)).unwrap();
    link("/", "rootfs");
    link(".aws/sso", "below");
    link("work", "beside");
    link("/proc", "processes");
    let files: Vec<&str> = secrets.into_iter().chain(["work/file"]).collect();
    // The same root by its name and by a link shows the same.
    for root in ["/".to_owned(), home.text("rootfs")] {
        for command in home.commands() {
            assert_eq!(home.read(command, &["--root", &root, "-w", "/"], &files), ["work/file"], "{root}");
        }
    }
    for mut command in home.commands() {
        let volume = format!("{}:/in", home.text("beside"));
        let out = command.args(["run", "-q", "-v", &volume, "--", "cat", "/in/file"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "<work/file>", "{out:?}");
    }
    for (name, words) in [("below", "is denied"), ("processes", "/proc cannot be given")] {
        for mode in ["run", "eval"] {
            for mut command in home.commands() {
                let volume = format!("{}:/in", home.text(name));
                command.args([mode, "-q", "-v", &volume]);
                let rest: &[&str] = if mode == "run" { &["--", "true"] } else { &["shell", "true"] };
                let out = command.args(rest).output().unwrap();
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(out.status.code() == Some(125) && said.contains(words), "{mode} {name}: {out:?}");
            }
        }
    }
}

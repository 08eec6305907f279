//! What a private registry wants to know before it gives an image to Docker's engine: what `docker login` kept.
//!
//! `config.json` names a helper for a registry (`credHelpers`), one for all (`credsStore`), or has them itself (`auths`). They
//! are read for the one registry that is asked, when it is asked, go to the engine's socket and nowhere else: never into a
//! message, a record or a debug output. Podman's service looks for its own.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde_json::Value;

use super::discover::DiscoveryHost;
use cofferdam_policy::text::escape;

use crate::host_programs;

/// What Docker Hub is called in there.
const HUB: &str = "https://index.docker.io/v1/";
/// A helper's answer is no longer.
const ANSWER: u64 = 64 << 10;
/// As a helper's user when what it has is a token.
const TOKEN: &str = "<token>";

/// The registry of a reference, as `config.json` names it.
pub(super) fn registry(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => match first {
            "docker.io" | "index.docker.io" | "registry-1.docker.io" => HUB,
            other => other,
        },
        _ => HUB,
    }
}

/// What is known for a registry; none where nothing is.
///
/// # Errors
/// What should know it fails, in words that hold nothing of it.
pub(super) fn of(around: &dyn DiscoveryHost, registry: &str) -> Result<Option<DockerCredentials>, String> {
    let directory = around
        .variable("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| around.variable("HOME").map(|home| Path::new(&home).join(".docker")));
    let Some(text) = directory.as_ref().and_then(|directory| around.read(&directory.join("config.json"))) else {
        return Ok(None);
    };
    let config = directory.unwrap_or_default().join("config.json");
    let told: Value = serde_json::from_str(&text).map_err(|_| format!("{} is no JSON", config.display()))?;
    let helper = told["credHelpers"][registry].as_str().or(told["credsStore"].as_str()).filter(|name| !name.is_empty());
    if let Some(name) = helper
        && let Some(found) = ask(around, name, registry)?
    {
        return Ok(Some(found));
    }
    let Some(auths) = told["auths"].as_object() else { return Ok(None) };
    let entry =
        auths.get(registry).or_else(|| auths.iter().find(|(key, _)| host(key) == host(registry)).map(|(_, e)| e));
    entry.map_or(Ok(None), |entry| {
        from_entry(entry, registry).map_err(|()| format!("what {} has of {registry} cannot be read", config.display()))
    })
}

/// The host of a key, which may be an address as well.
fn host(key: &str) -> &str {
    let bare = key.strip_prefix("https://").or(key.strip_prefix("http://")).unwrap_or(key);
    bare.split('/').next().unwrap_or(bare)
}

fn from_entry(entry: &Value, registry: &str) -> Result<Option<DockerCredentials>, ()> {
    let text = |name: &str| entry[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let mut found = DockerCredentials {
        username: text("username"),
        password: text("password"),
        identitytoken: text("identitytoken"),
        registrytoken: text("registrytoken"),
        serveraddress: Some(registry.to_owned()),
        ..DockerCredentials::default()
    };
    if let Some(packed) = text("auth") {
        let bytes = STANDARD.decode(packed.trim_end_matches('\0')).map_err(|_| ())?;
        let plain = String::from_utf8(bytes).map_err(|_| ())?;
        let (user, password) = plain.split_once(':').ok_or(())?;
        found.username = Some(user.to_owned());
        found.password = Some(password.trim_end_matches('\0').to_owned());
    }
    let any = found.username.is_some() || found.identitytoken.is_some() || found.registrytoken.is_some();
    Ok(any.then_some(found))
}

/// Asks `docker-credential-NAME`, as docker does: the registry goes in, JSON comes out.
fn ask(around: &dyn DiscoveryHost, name: &str, registry: &str) -> Result<Option<DockerCredentials>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.chars().all(plain) {
        return Err(format!("{} is no name of a credential helper", escape(name.as_bytes())));
    }
    let program = format!("docker-credential-{name}");
    let path = around.program(&program).ok_or_else(|| format!("{program} is not on PATH"))?;
    let failed = |what: &dyn std::fmt::Display| format!("{program}: {what}");
    let mut child = Command::new(path)
        .arg("get")
        .env("PATH", host_programs::installed_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // One that does not want to know has answered.
        drop(input.write_all(registry.as_bytes()));
    }
    let mut answer = String::new();
    let read = child.stdout.take().map(|out| out.take(ANSWER).read_to_string(&mut answer));
    let status = child.wait().map_err(|error| failed(&error))?;
    if !status.success() {
        // What it says then, at standard output, may be that it knows none, or that it is locked.
        return if answer.contains("credentials not found") { Ok(None) } else { Err(failed(&status)) };
    }
    let told: Value = match read {
        Some(Ok(_)) => serde_json::from_str(&answer).map_err(|_| failed(&"its answer is no JSON"))?,
        _ => return Err(failed(&"its answer cannot be read")),
    };
    let (Some(user), Some(secret)) = (told["Username"].as_str(), told["Secret"].as_str()) else {
        return Err(failed(&"its answer has no user or no secret"));
    };
    let mut found = DockerCredentials { serveraddress: Some(registry.to_owned()), ..DockerCredentials::default() };
    if user == TOKEN {
        found.identitytoken = Some(secret.to_owned());
    } else {
        (found.username, found.password) = (Some(user.to_owned()), Some(secret.to_owned()));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Home(HashMap<PathBuf, String>, Option<PathBuf>);

    impl DiscoveryHost for Home {
        fn variable(&self, name: &str) -> Option<String> {
            (name == "HOME").then(|| "/home/u".into())
        }
        fn connect(&self, _: &Path) -> std::io::Result<()> {
            Err(std::io::ErrorKind::NotFound.into())
        }
        fn read(&self, path: &Path) -> Option<String> {
            self.0.get(path).cloned()
        }
        fn program(&self, name: &str) -> Option<PathBuf> {
            (name == "docker-credential-test").then(|| self.1.clone()).flatten()
        }
        fn uid(&self) -> u32 {
            1000
        }
        fn is_own(&self, _: &Path) -> bool {
            true
        }
    }

    fn with(config: &str, helper: Option<&Path>) -> Home {
        Home([("/home/u/.docker/config.json".into(), config.into())].into(), helper.map(Path::to_owned))
    }

    fn pair(found: Option<DockerCredentials>) -> Option<(String, String)> {
        found.and_then(|found| Some((found.username?, found.password?)))
    }

    #[test]
    fn the_registry_of_a_reference() {
        for (reference, wanted) in [
            ("alpine:3.20", HUB),
            ("library/alpine", HUB),
            ("docker.io/library/alpine", HUB),
            ("registry.example/tools@sha256:00", "registry.example"),
            ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000"),
            ("localhost/a", "localhost"),
        ] {
            assert_eq!(registry(reference), wanted, "{reference}");
        }
    }

    #[test]
    fn what_login_kept_is_found_for_its_registry_and_no_other() {
        let config = r#"{"auths":{"registry.example":{"auth":"dTpwOnE="},"https://old.example/v1/":{"auth":"dTpw"},
                         "empty.example":{},"bad.example":{"auth":"c2VjcmV0"},"token.example":{"identitytoken":"t"}}}"#;
        let around = with(config, None);
        let user = |password: &str| Some(("u".to_owned(), password.to_owned()));
        assert_eq!(pair(of(&around, "registry.example").unwrap()), user("p:q"));
        assert_eq!(pair(of(&around, "old.example").unwrap()), user("p"));
        assert!(of(&around, "empty.example").unwrap().is_none() && of(&around, "other.example").unwrap().is_none());
        assert_eq!(of(&around, "token.example").unwrap().unwrap().identitytoken.as_deref(), Some("t"));
        let told = of(&around, "bad.example").unwrap_err();
        assert!(told.contains("bad.example") && !told.contains("c2VjcmV0") && !told.contains("secret"), "{told}");
        assert!(of(&Home(HashMap::new(), None), "registry.example").unwrap().is_none(), "nobody logged in");
    }

    #[test]
    fn a_helper_serves_its_registries_and_its_output_stays_secret() {
        let work = tempfile::tempdir().unwrap();
        let helper = work.path().join("helper");
        let script = "read registry; case \"$1 $registry\" in 'get registry.example') echo '{\"Username\":\"u\",\"Secret\":\"p\"}';; \
                      'get token.example') echo '{\"Username\":\"<token>\",\"Secret\":\"t\"}';; \
                      'get locked.example') echo hunter2; exit 1;; \
                      *) echo 'credentials not found in native keychain'; exit 1;; esac\n";
        let write = "printf '#!/bin/sh\\n%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&helper).arg(script).status().unwrap().success());
        let config = r#"{"credsStore":"test","credHelpers":{"named.example":"other","bad.example":"../x"},
                         "auths":{"kept.example":{"auth":"dTpw"}}}"#;
        let around = with(config, Some(&helper));
        let user = Some(("u".to_owned(), "p".to_owned()));
        assert_eq!(pair(of(&around, "registry.example").unwrap()), user);
        assert_eq!(of(&around, "token.example").unwrap().unwrap().identitytoken.as_deref(), Some("t"));
        assert_eq!(pair(of(&around, "kept.example").unwrap()), user, "which the helper does not know");
        assert!(of(&around, "other.example").unwrap().is_none());
        assert!(of(&around, "named.example").unwrap_err().contains("docker-credential-other is not on PATH"));
        assert!(of(&around, "bad.example").unwrap_err().contains("no name of a credential helper"));
        let told = of(&around, "locked.example").unwrap_err();
        assert!(told.contains("docker-credential-test") && !told.contains("hunter2"), "{told}");
    }
}

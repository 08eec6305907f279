//! Surroundings in which engines are, or are not.

use std::collections::HashMap;

use super::*;

#[derive(Default)]
struct Host {
    variables: HashMap<&'static str, String>,
    /// What connecting gives; anything else is not there.
    sockets: HashMap<PathBuf, Option<io::ErrorKind>>,
    files: HashMap<PathBuf, String>,
    podman: bool,
    /// A directory of another user.
    foreign: Option<&'static str>,
}

impl Host {
    fn with(variables: &[(&'static str, &str)], listening: &[&str]) -> Host {
        Host {
            variables: variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            sockets: listening.iter().map(|path| (PathBuf::from(path), None)).collect(),
            ..Host::default()
        }
    }
}

impl DiscoveryHost for Host {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn connect(&self, path: &Path) -> io::Result<()> {
        match self.sockets.get(path) {
            Some(None) => Ok(()),
            Some(Some(kind)) => Err((*kind).into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn read(&self, path: &Path) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        (self.podman && name == "podman").then(|| "/usr/bin/podman".into())
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn is_own(&self, directory: &Path) -> bool {
        self.foreign.is_none_or(|foreign| directory != Path::new(foreign))
    }
}

fn socket(path: &str) -> EngineEndpoint {
    EngineEndpoint::Socket(path.into())
}

const DOCKER: &str = "/var/run/docker.sock";

#[test]
fn the_variable_comes_first_and_alone() {
    let host = Host::with(&[("DOCKER_HOST", "unix:///a.sock")], &["/a.sock", DOCKER]);
    assert_eq!(find(Flavour::Docker, &host).unwrap(), socket("/a.sock"));
    let host = Host::with(&[("DOCKER_HOST", "unix:///a.sock")], &[DOCKER]);
    let failure = find(Flavour::Docker, &host).unwrap_err();
    assert!(failure.message.contains("/a.sock (not there)") && !failure.message.contains(DOCKER), "{failure:?}");
    let host = Host::with(&[("CONTAINER_HOST", "unix:///p.sock")], &["/p.sock"]);
    assert_eq!(find(Flavour::Podman, &host).unwrap(), socket("/p.sock"));
}

#[test]
fn an_engine_of_another_machine_is_refused_and_not_replaced() {
    for elsewhere in
        ["tcp://127.0.0.1:2375", "ssh://u@host", "http://x", "unix://", "unix://relative", "npipe:////./pipe/x"]
    {
        let host = Host {
            podman: true,
            ..Host::with(&[("DOCKER_HOST", elsewhere), ("CONTAINER_HOST", elsewhere)], &[DOCKER])
        };
        for flavour in [Flavour::Docker, Flavour::Podman] {
            let failure = find(flavour, &host).unwrap_err();
            assert!(failure.message.contains("only an engine of this machine"), "{failure:?}");
            assert!(failure.hint.unwrap().contains("=unix://"), "{elsewhere}");
        }
    }
}

#[test]
fn the_current_context_counts_where_no_variable_does() {
    // sha256 of `work`.
    let digest: String = Sha256::digest(b"work").iter().map(|byte| format!("{byte:02x}")).collect();
    let meta = format!("/home/u/.docker/contexts/meta/{digest}/meta.json");
    let of = |address: &str| {
        let mut host = Host::with(&[("HOME", "/home/u")], &["/work.sock", DOCKER]);
        host.files.insert("/home/u/.docker/config.json".into(), r#"{"currentContext":"work","auths":{}}"#.into());
        host.files.insert(
            meta.clone().into(),
            format!(r#"{{"Name":"work","Endpoints":{{"docker":{{"Host":"{address}"}}}}}}"#),
        );
        host
    };
    assert_eq!(find(Flavour::Docker, &of("unix:///work.sock")).unwrap(), socket("/work.sock"));
    let failure = find(Flavour::Docker, &of("ssh://far")).unwrap_err();
    assert!(failure.message.contains("context work"), "{failure:?}");
    let failure = find(Flavour::Docker, &of("unix:///gone.sock")).unwrap_err();
    assert!(failure.hint.unwrap().contains("docker context use default"));
    let mut default = of("ssh://far");
    default.variables.insert("DOCKER_CONTEXT", "default".into());
    assert_eq!(find(Flavour::Docker, &default).unwrap(), socket(DOCKER));
    let mut unknown = of("unix:///work.sock");
    unknown.files.remove(Path::new(&meta));
    assert!(find(Flavour::Docker, &unknown).unwrap_err().message.contains("nowhere described"));
}

#[test]
fn the_usual_places_are_tried_in_turn_and_all_are_named() {
    let own = &[("XDG_RUNTIME_DIR", "/run/user/1000")];
    assert_eq!(find(Flavour::Docker, &Host::with(own, &[DOCKER])).unwrap(), socket(DOCKER));
    let rootless = "/run/user/1000/docker.sock";
    assert_eq!(find(Flavour::Docker, &Host::with(own, &[rootless])).unwrap(), socket(rootless));
    assert_eq!(find(Flavour::Docker, &Host::with(&[], &[rootless])).unwrap(), socket(rootless), "no variable");
    let both = ["/run/user/1000/podman/podman.sock", "/run/podman/podman.sock"];
    assert_eq!(find(Flavour::Podman, &Host::with(own, &both)).unwrap(), socket(both[0]));
    assert_eq!(find(Flavour::Podman, &Host::with(own, &both[1..])).unwrap(), socket(both[1]));
    let failure = find(Flavour::Docker, &Host::with(own, &[])).unwrap_err();
    assert!(failure.message.contains(DOCKER) && failure.message.contains(rootless), "{failure:?}");
    assert!(failure.hint.unwrap().contains("systemctl start docker"));
    let failure = find(Flavour::Podman, &Host::with(own, &[])).unwrap_err();
    assert!(both.iter().all(|path| failure.message.contains(path)), "{failure:?}");
    assert!(failure.message.contains("podman (not on PATH)") && failure.hint.unwrap().contains("podman.socket"));
}

#[test]
fn an_engine_in_another_users_directory_is_not_taken_for_ones_own() {
    let theirs = "/run/user/1001/podman/podman.sock";
    let mut host = Host::with(&[("XDG_RUNTIME_DIR", "/run/user/1001")], &[theirs, "/run/user/1001/docker.sock"]);
    assert_eq!(find(Flavour::Podman, &host).unwrap(), socket(theirs), "the twin");
    host.foreign = Some("/run/user/1001");
    for flavour in [Flavour::Podman, Flavour::Docker] {
        let failure = find(flavour, &host).unwrap_err();
        assert!(
            !failure.message.contains("/run/user/1001") && failure.message.contains("/run/user/1000/"),
            "{failure:?}"
        );
    }
    host.podman = true;
    assert_eq!(find(Flavour::Podman, &host).unwrap(), EngineEndpoint::Program("/usr/bin/podman".into()));
    host.variables.insert("CONTAINER_HOST", format!("unix://{theirs}"));
    assert_eq!(find(Flavour::Podman, &host).unwrap(), socket(theirs), "who names it means it");
}

#[test]
fn a_socket_without_permission_is_reported_as_that() {
    let mut host = Host::default();
    host.sockets.insert(DOCKER.into(), Some(io::ErrorKind::PermissionDenied));
    let failure = find(Flavour::Docker, &host).unwrap_err();
    assert!(failure.message.contains("permission denied"), "{failure:?}");
    assert!(failure.hint.unwrap().contains("usermod -aG docker"));
    host.variables.insert("DOCKER_HOST", format!("unix://{DOCKER}"));
    let named = find(Flavour::Docker, &host).unwrap_err();
    assert!(named.hint.unwrap().contains("usermod -aG docker"), "it runs: starting it helps nobody");
    host.variables.clear();
    host.sockets.insert(DOCKER.into(), Some(io::ErrorKind::ConnectionRefused));
    let failure = find(Flavour::Docker, &host).unwrap_err();
    assert!(failure.message.contains("nobody listens") && failure.hint.unwrap().contains("systemctl start"));
}

#[test]
fn podman_itself_serves_where_none_does() {
    let host = Host { podman: true, ..Host::default() };
    assert_eq!(find(Flavour::Podman, &host).unwrap(), EngineEndpoint::Program("/usr/bin/podman".into()));
    assert!(find(Flavour::Docker, &host).is_err(), "not in Docker's place");
}

//! Optional mounts on every backend that is here: left out where nothing is, reported in the answer, and otherwise as any
//! other mount. Each denial has its allowed twin.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cofferdam_engine::{Engine, Io, Outcome, Prepared};
use cofferdam_policy::{Access, BackendName, Field, Mount, Policy};

const BACKENDS: [BackendName; 4] =
    [BackendName::Jail, BackendName::Landlock, BackendName::Bubblewrap, BackendName::Nsjail];

/// A directory that every user may look into, with `here/file` in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        std::fs::set_permissions(place.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        place.fill("here");
        place
    }

    fn at(&self, name: &str) -> String {
        let dir: PathBuf = self.0.path().canonicalize().unwrap();
        dir.join(name).to_str().unwrap().to_owned()
    }

    fn fill(&self, name: &str) {
        std::fs::create_dir(self.at(name)).unwrap();
        std::fs::write(self.at(name) + "/file", format!("{name}\n")).unwrap();
    }
}

/// Shows these directories, each at its own place, in a root that shows nothing else of them.
fn policy(place: &Place, backend: BackendName, names: &[(&str, bool)]) -> Policy {
    let mut policy = Policy::base();
    let files: Vec<String> = names.iter().map(|(name, _)| place.at(name) + "/file").collect();
    // Without a process of its own for each file: the landlock backend counts those of the user's other programs.
    policy.command.argv =
        ["sh", "-c", "for f; do { read -r line <\"$f\" && echo \"$line\"; } || echo none; done 2>/dev/null", "sh"]
            .map(str::to_owned)
            .to_vec();
    policy.command.argv.extend(files);
    policy.command.cwd = Some("/".into());
    policy.backend = backend;
    for (name, optional) in names {
        let (source, target) = (place.at(name), place.at(name));
        policy.filesystem.mounts.push(Mount::Bind {
            source,
            target,
            access: Access::ReadOnly,
            exec: false,
            optional: *optional,
        });
    }
    // Here it is about mounts; what a backend holds less than fully otherwise is told elsewhere.
    Field::ALL.iter().for_each(|field| policy.allow_partial(*field));
    policy
}

/// The policy on each backend that is here; what is not here is said.
fn each(names: &[(&str, bool)], check: impl Fn(&Place, Prepared, BackendName)) {
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|v| v == "1");
    for backend in BACKENDS {
        let place = Place::new();
        // Whether the backend is here at all is asked without any mount.
        if let Err(failure) = Engine::probe().prepare(&policy(&place, backend, &[])) {
            eprintln!("skipped {backend:?}: {}", failure.message);
            assert!(!must || backend == BackendName::Nsjail, "{failure:?}");
            continue;
        }
        let prepared = Engine::probe().prepare(&policy(&place, backend, names));
        check(&place, prepared.unwrap_or_else(|e| panic!("{backend:?}: {e:?}")), backend);
    }
}

fn record(o: &Outcome) -> &str {
    &o.enforcement[&Field::Mounts].reason
}

#[test]
fn missing_sources_are_left_out_and_reported_and_later_shown() {
    each(&[("here", true), ("gone", true)], |place, prepared, backend| {
        let o = prepared.run(Io::default());
        assert!(o.error.is_none(), "{backend:?}: {o:?}");
        assert_eq!(o.stdout, "here\nnone\n", "{backend:?}: {o:?}");
        let left_out = format!("left out, for nothing is there: {}", place.at("gone"));
        assert!(record(&o).ends_with(&left_out), "{backend:?}: {}", record(&o));
        // The twin: the same mount, the same prepared policy, and something is there.
        place.fill("gone");
        let o = prepared.run(Io::default());
        assert_eq!(o.stdout, "here\ngone\n", "{backend:?}: {o:?}");
        assert!(!record(&o).contains("left out"), "{backend:?}: {}", record(&o));
    });
}

#[test]
fn a_staged_sandbox_is_not_used_once_an_optional_mount_is_there() {
    let place = Place::new();
    let policy = policy(&place, BackendName::Jail, &[("gone", true)]);
    let prepared = match Engine::probe().prepare(&policy) {
        Ok(prepared) => prepared.keep_ready(1),
        Err(failure) => {
            eprintln!("skipped: {}", failure.message);
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{failure:?}");
            return;
        }
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    place.fill("gone");
    let o = prepared.run(Io::default());
    assert_eq!(o.stdout, "gone\n", "{o:?}");
    assert!(!record(&o).contains("left out"), "{}", record(&o));
}

#[test]
fn what_is_there_and_cannot_be_mounted_is_refused_and_so_is_what_must_be_there() {
    each(&[], |place, _, backend| {
        let refused = |name: &str, optional| {
            let policy = policy(place, backend, &[(name, optional)]);
            Engine::probe().prepare(&policy).map(|p| p.run(Io::default())).map_or_else(Some, |o| o.error)
        };
        let gone = refused("gone", false).unwrap_or_else(|| panic!("{backend:?}: it must be there"));
        assert!(gone.message.contains("gone"), "{backend:?}: {gone:?}");
        assert_eq!(refused("gone", true), None, "{backend:?}: the twin");
        std::os::unix::fs::symlink("circle", place.at("circle")).unwrap();
        assert!(refused("circle", true).is_some(), "{backend:?}: a link that leads in circles is there");
        if backend != BackendName::Landlock {
            let fifo = place.at("fifo");
            assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
            let refused = refused("fifo", true).unwrap_or_else(|| panic!("{backend:?}: a FIFO"));
            assert!(refused.message.contains("way out"), "{refused:?}");
        }
    });
}

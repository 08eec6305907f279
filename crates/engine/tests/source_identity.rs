//! A mount source that was replaced after the caller had checked it is not mounted, on every backend that is here; the
//! source that was checked is.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use cofferdam_engine::{Engine, Failure, Io, Prepared};
use cofferdam_policy::{Access, BackendName, Field, FileIdentity, Mount, Policy};

const BACKENDS: [BackendName; 4] =
    [BackendName::Jail, BackendName::Landlock, BackendName::Bubblewrap, BackendName::Nsjail];

/// A directory that every user may look into, with `NAME/file` in it, which says NAME.
fn tree(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in names {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join(name).join("file"), format!("{name}\n")).unwrap();
    }
    dir
}

/// Reads the source's file, which the policy shows at its own place. The identity is that of the directory there now.
fn policy(source: &str, backend: BackendName) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["/bin/cat".to_owned(), format!("{source}/file")];
    policy.command.cwd = Some("/".into());
    policy.backend = backend;
    policy.filesystem.mounts.push(Mount::Bind {
        source: source.to_owned(),
        target: source.to_owned(),
        access: Access::ReadOnly,
        exec: false,
        optional: false,
    });
    let about = std::fs::metadata(source).unwrap();
    let identity = FileIdentity { device: about.dev(), inode: about.ino() };
    policy.filesystem.identities.insert(source.to_owned(), identity);
    // What a backend enforces less than fully otherwise is another test's.
    Field::ALL.iter().for_each(|field| policy.allow_partial(*field));
    policy
}

/// What the program printed, or why nothing was run.
fn printed(prepared: &Prepared) -> Result<String, Failure> {
    let outcome = prepared.run(Io::default());
    outcome.error.map_or(Ok(outcome.stdout), Err)
}

#[test]
fn a_source_that_was_replaced_after_it_was_checked_is_not_mounted() {
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1");
    for backend in BACKENDS {
        let dir = tree(&["project", "secret"]);
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
        let engine = Engine::probe();
        let policy = policy(&at("project"), backend);
        let prepared = match engine.prepare(&policy) {
            Ok(prepared) => prepared,
            Err(failure) => {
                eprintln!("skipped {backend:?}: {}", failure.message);
                assert!(!must || backend == BackendName::Nsjail, "{failure:?}");
                continue;
            }
        };
        // A staged sandbox is compared as any other.
        let prepared = if backend == BackendName::Jail { prepared.keep_ready(1) } else { prepared };
        assert_eq!(printed(&prepared).unwrap(), "project\n", "{backend:?}: the control");

        std::fs::rename(at("project"), at("aside")).unwrap();
        for link in [true, false] {
            if link {
                std::os::unix::fs::symlink(at("secret"), at("project")).unwrap();
            } else {
                std::fs::remove_file(at("project")).unwrap();
                std::fs::rename(at("secret"), at("project")).unwrap();
            }
            let anew = engine.prepare(&policy).and_then(|prepared| printed(&prepared));
            for refused in [printed(&prepared), anew] {
                let failure = refused.expect_err(backend.name());
                eprintln!("{backend:?}: {}", failure.message);
                assert!(failure.message.contains(&at("project")), "{backend:?}: {failure:?}");
            }
        }
        std::fs::rename(at("project"), at("secret")).unwrap();
        std::fs::rename(at("aside"), at("project")).unwrap();
        assert_eq!(printed(&prepared).unwrap(), "project\n", "{backend:?}: the checked one is back");
    }
}

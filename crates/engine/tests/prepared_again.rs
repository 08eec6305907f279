//! A policy that is prepared once and run again sees the host as it is at each run: what was made in between is protected,
//! and a name that is gone does not stop the run.

use std::os::unix::fs::PermissionsExt as _;

use cofferdam_engine::{Engine, Io, Outcome};
use cofferdam_policy::{Access, BackendName, Field, Mount, Policy, Root};

#[test]
fn what_was_made_between_two_runs_is_protected_in_the_second() {
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1");
    for backend in [BackendName::Jail, BackendName::Bubblewrap, BackendName::Oci] {
        let volume = tempfile::tempdir().unwrap();
        let path = volume.path().canonicalize().unwrap();
        let mode = |name: &str| {
            std::fs::set_permissions(path.join(name), std::fs::Permissions::from_mode(0o777)).unwrap();
        };
        mode("");
        let mut policy = Policy::base();
        policy.filesystem.root = Root::Minimal;
        policy.command.argv =
            ["/bin/sh", "-c", "echo x >beside; echo x >.git/hooks/pre-commit; :"].map(str::to_owned).to_vec();
        policy.command.cwd = Some("/work".into());
        policy.backend = backend;
        policy.filesystem.mounts.push(Mount::Bind {
            source: path.to_str().unwrap().to_owned(),
            target: "/work".into(),
            access: Access::ReadWrite,
            exec: false,
            optional: false,
        });
        // What is enforced in part is another test's.
        Field::ALL.iter().for_each(|field| policy.allow_partial(*field));
        let prepared = match Engine::probe().prepare(&policy) {
            Ok(prepared) => prepared,
            Err(failure) => {
                eprintln!("skipped {backend:?}: {}", failure.message);
                assert!(!must, "{failure:?}");
                continue;
            }
        };
        let run = || -> Outcome {
            let outcome = prepared.run(Io::default());
            assert_eq!(outcome.exit_code, Some(0), "{backend:?}: {outcome:?}");
            assert!(path.join("beside").exists(), "{backend:?}: the control");
            std::fs::remove_file(path.join("beside")).unwrap();
            outcome
        };
        run();
        std::fs::create_dir_all(path.join(".git/hooks")).unwrap();
        mode(".git/hooks");
        run();
        assert!(!path.join(".git/hooks/pre-commit").exists(), "{backend:?}");
        std::fs::remove_dir_all(path.join(".git")).unwrap();
        run();
    }
}

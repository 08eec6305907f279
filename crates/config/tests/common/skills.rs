//! Properties of any bytes parsed as a skill's manifest or an operator's configuration, for the property tests and fuzz targets.

use std::sync::OnceLock;

use cofferdam_config::skills::manifest::{Manifest, Stage, is_address, is_name, path_fault};
use cofferdam_config::skills::operator::{OperatorConfig, SKILL_DIRECTORY};
use cofferdam_config::skills::policy::policy;
use cofferdam_config::skills::signature::{VersionHash, verify};
use cofferdam_policy::{Access, Mount, NetworkMode, OnViolation, Policy, PolicyErrors, Root};

const FILES: &str = "/var/lib/skills/content";

fn reported(errors: &PolicyErrors) {
    assert!(!errors.0.is_empty());
    for error in &errors.0 {
        let text = error.to_string();
        assert!(error.path.starts_with('$') && !error.problem.is_empty(), "{text:?}");
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
    }
}

/// Parsing a manifest never panics. An accepted one is within all bounds, is equal when it is written and parsed again, and makes a
/// policy that grants no more than it requests, or an error.
pub(crate) fn manifest(bytes: &[u8]) {
    for stage in [Stage::Draft, Stage::Signed] {
        let manifest = match Manifest::decode(bytes, stage) {
            Ok(manifest) => manifest,
            Err(errors) => {
                reported(&errors);
                continue;
            }
        };
        assert!(is_name(&manifest.name) && is_address(&manifest.publisher.address));
        assert!(manifest.signature.is_some() || stage == Stage::Draft);
        for (at, file) in manifest.files.iter().enumerate() {
            assert_eq!(path_fault(&file.path), None, "{:?}", file.path);
            assert!(manifest.files[..at].iter().all(|other| other.path != file.path), "twice {:?}", file.path);
        }
        let again = Manifest::decode(manifest.encode().as_bytes(), stage).expect("what was written is read");
        assert_eq!(again, manifest);
        assert_eq!(
            (again.canonical(), VersionHash::of(&again).hex()),
            (manifest.canonical(), VersionHash::of(&manifest).hex())
        );
        assert!(verify(&manifest).is_err() || manifest.signature.is_some(), "signed by nothing");
        holds(&manifest, &OperatorConfig::default());
    }
}

/// Parsing an operator's configuration never panics. With an accepted one no skill gets more than both sides grant.
pub(crate) fn operator(bytes: &[u8]) {
    static MANIFEST: OnceLock<Manifest> = OnceLock::new();
    let manifest = MANIFEST.get_or_init(|| {
        let text = include_bytes!("../seeds/skill_manifest/a.json");
        Manifest::decode(text, Stage::Signed).expect("the seed is a manifest")
    });
    match OperatorConfig::decode(bytes) {
        Ok(config) => holds(manifest, &config),
        Err(errors) => reported(&errors),
    }
}

fn holds(manifest: &Manifest, operator: &OperatorConfig) {
    let policy = match policy(manifest, operator, FILES, &[]) {
        Ok(policy) => policy,
        Err(errors) => return reported(&errors),
    };
    assert_eq!(policy.validate(), Ok(()));
    assert!(
        policy.limits.memory_mb <= manifest.sandbox.memory_mb && policy.limits.wall_ms <= manifest.sandbox.timeout_ms
    );
    assert!(operator.memory_limit_mb.is_none_or(|most| policy.limits.memory_mb <= most));
    assert!(operator.timeout_ms.is_none_or(|most| policy.limits.wall_ms <= most));
    assert_eq!(policy.process.unix_sockets, operator.unix_sockets);
    assert!(!policy.process.spawn || (manifest.sandbox.allow_spawn && !operator.no_spawn));
    assert!(matches!(policy.network.mode, NetworkMode::None | NetworkMode::Loopback | NetworkMode::Allowlist));
    assert!(policy.network.allow.is_empty() || operator.network == NetworkMode::Allowlist);
    assert!(policy.network.mode != NetworkMode::Loopback || operator.network == NetworkMode::Loopback);
    let mut variables = Policy::base().command.variables;
    variables.extend(operator.variables.clone());
    assert_eq!(policy.command.variables, variables, "the sandbox's own and the operator's");
    assert_eq!(policy.on_violation, OnViolation::Terminate);
    assert_ne!(policy.filesystem.root, Root::Host);
    for mount in &policy.filesystem.mounts {
        match mount {
            Mount::Bind { source, target, access, .. } => {
                assert_eq!((source.as_str(), target.as_str(), *access), (FILES, SKILL_DIRECTORY, Access::ReadOnly));
            }
            Mount::Tmpfs { exec, .. } => assert!(!exec),
        }
    }
}

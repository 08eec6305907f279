//! The actions of `cofferdam skill` on keys, signatures and the registry: all but `run`.
//!
//! A registration is recorded before it takes effect, and so are the reasons of a refused one. A revocation takes effect first
//! and is recorded afterwards, so that a full disk cannot prevent it.

use std::path::Path;

use cofferdam_config::skills::intake::{listing, open};
use cofferdam_config::skills::manifest::{MANIFEST_FILE, Manifest, Stage, is_name};
use cofferdam_config::skills::registry::{Registered, Skill, VersionState};
use cofferdam_config::skills::signature::{KeyError, PublisherKey};
use cofferdam_config::skills::{FaultCode, SkillError};
use cofferdam_engine::audit::{AuditEntry, Durability, Trail};
use cofferdam_policy::text;
use serde_json::{Value, json};

use super::invocation::{Invocation, SKILL_REFUSED, refused};
use crate::output::stderr::print_note;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// Longest error message in a record, characters.
const LONGEST_MESSAGE: usize = 8000;

fn key_refusal(error: KeyError) -> CliRefusal {
    CliRefusal::new("skill", error.to_string()).split_hint()
}

/// Makes a publisher's key.
pub(super) fn keygen(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let file = invocation.caller.absolute(invocation.what("FILE")?);
    let key = PublisherKey::make(Path::new(&file)).map_err(key_refusal)?;
    match invocation.flag("json") {
        true => print_json(&json!({ "file": file, "address": key.address() }))?,
        false => print(&format!("{}\n", key.address()))?,
    }
    Ok(0)
}

/// Signs the manifest of a directory.
pub(super) fn sign(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let directory = invocation.caller.absolute(invocation.what("DIR")?);
    let directory = Path::new(&directory);
    let key = invocation.path("key").ok_or_else(|| {
        CliRefusal::new("arguments", "sign takes the publisher's key").hint("cofferdam skill sign DIR --key FILE")
    })?;
    let key = PublisherKey::read(&key).map_err(key_refusal)?;
    let refusal = |error: SkillError| refused(&error, SKILL_REFUSED);
    let (root, mut text) = open(directory).map_err(refusal)?;
    if invocation.flag("files") {
        let files = listing(directory).map_err(refusal)?;
        text = Manifest::with_files(&text, &files).map_err(|errors| refusal(errors.into()))?;
    }
    let mut manifest = Manifest::decode(&text, Stage::Draft).map_err(|errors| refusal(errors.into()))?;
    key.sign(&mut manifest).map_err(|error| {
        CliRefusal::new("skill", format!("signature_verification_failed: {error}"))
            .hint(format!("write the key's address, {}, as publisher.address", key.address()))
            .code(SKILL_REFUSED)
    })?;
    cofferdam_config::skills::put_manifest(&root, &manifest)
        .map_err(|error| CliRefusal::new("skill", format!("cannot write {MANIFEST_FILE}: {error}")))?;
    match invocation.flag("json") {
        true => print_json(&manifest)?,
        false => print(&format!("signed {} by {}\n", manifest.name, key.address()))?,
    }
    Ok(0)
}

/// Reports every reason for which a directory would not be registered.
pub(super) fn verify(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let directory = invocation.caller.absolute(invocation.what("DIR")?);
    match invocation.registry.verify(Path::new(&directory)) {
        Ok(taken) if invocation.flag("json") => {
            print_json(
                &json!({ "ok": true, "name": taken.manifest.name, "version": taken.version.hex(), "errors": [] }),
            )?;
        }
        Ok(taken) => print(&format!(
            "{}@{}: {} files, all as signed\n",
            taken.manifest.name,
            taken.version.hex(),
            taken.files.len()
        ))?,
        Err(error) => return report_faults(invocation, &error),
    }
    Ok(0)
}

/// The faults of a skill as JSON where the call asks for it, or as a refusal.
fn report_faults(invocation: &Invocation<'_>, error: &SkillError) -> Result<i32, CliRefusal> {
    match error {
        SkillError::Refused(faults) if invocation.flag("json") => {
            print_json(&json!({ "ok": false, "errors": faults })).map(|()| SKILL_REFUSED)
        }
        _ => Err(refused(error, SKILL_REFUSED)),
    }
}

/// Registers a directory.
pub(super) fn register(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let directory = invocation.caller.absolute(invocation.what("DIR")?);
    let directory = Path::new(&directory);
    let trail = invocation.trail()?;
    let record = |what: &Registered| {
        let entry = entry("skill_registered", what);
        let entry = if what.repaired { entry.with("repaired", true) } else { entry };
        trail.append(entry, Durability::Durable).map(|_| ()).map_err(|error| error.to_string())
    };
    match invocation.registry.register(directory, record) {
        Ok(registered) => {
            match invocation.flag("json") {
                true => print_json(&to_json(&registered))?,
                false => {
                    let done = if registered.repaired { "put back the damaged files of" } else { "registered" };
                    print(&format!("{done} {}@{}\n", registered.name, registered.version))?;
                }
            }
            Ok(0)
        }
        Err(error) => {
            record_refused(&trail, directory, &error)?;
            report_faults(invocation, &error)
        }
    }
}

/// Records why a skill was not registered.
fn record_refused(trail: &Trail, directory: &Path, error: &SkillError) -> Result<(), CliRefusal> {
    let codes: Vec<&str> = error.codes().into_iter().map(FaultCode::name).collect();
    let message: String = error.to_string().chars().take(LONGEST_MESSAGE).collect();
    let mut entry = AuditEntry::new("skill_registration_failed")
        .with("error", codes.first().copied().unwrap_or("registry_failed"))
        .with("errors", codes)
        .with("message", message);
    // The name that the manifest claims, if there is one.
    let name = open(directory).ok().and_then(|(_, text)| {
        let document: Value = serde_json::from_slice(&text).ok()?;
        document.get("name")?.as_str().filter(|name| is_name(name)).map(str::to_owned)
    });
    entry.skill = name;
    let unrecorded = |e: cofferdam_engine::audit::AuditError| {
        CliRefusal::new("audit", format!("{error}\nthis could not be recorded: {e}")).split_hint()
    };
    trail.append(entry, Durability::Durable).map(|_| ()).map_err(unrecorded)
}

fn entry(kind: &str, what: &Registered) -> AuditEntry {
    AuditEntry::new(kind)
        .skill(&what.name)
        .with("version", what.version.as_str())
        .with("publisher", what.publisher.as_str())
}

fn to_json(what: &Registered) -> Value {
    let mut value = json!({ "name": what.name, "version": what.version, "publisher": what.publisher });
    if what.repaired {
        value["repaired"] = true.into();
    }
    value
}

/// Revokes a skill, or one version of it.
pub(super) fn revoke(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let spec = invocation.spec()?;
    let revoked = match invocation.registry.revoke(&spec) {
        Ok(revoked) => revoked,
        Err(error) => return report_faults(invocation, &error),
    };
    let recorded = invocation.trail().and_then(|trail| {
        revoked.iter().try_for_each(|what| {
            let written = trail.append(entry("skill_revoked", what), Durability::Durable);
            written.map(|_| ()).map_err(|error| CliRefusal::new("audit", error.to_string()).split_hint())
        })
    });
    match invocation.flag("json") {
        true => print_json(&revoked.iter().map(to_json).collect::<Vec<_>>())?,
        false if revoked.is_empty() => print("it was revoked before\n")?,
        false => print(&revoked.iter().map(|it| format!("revoked {}@{}\n", it.name, it.version)).collect::<String>())?,
    }
    recorded.map(|()| 0).map_err(|mut refusal| {
        refusal.message = format!("it is revoked, and that could not be recorded: {}", refusal.message);
        refusal
    })
}

fn state_name(state: VersionState) -> &'static str {
    match state {
        VersionState::Registered => "registered",
        VersionState::Revoked => "revoked",
    }
}

/// Lists the registered skills.
pub(super) fn list(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    // The first registration creates the default registry; a missing one that the call names is a typing error.
    if invocation.text("registry").is_some() && !invocation.registry.directory().exists() {
        let place = invocation.registry.directory().display();
        return Err(CliRefusal::new("skill", format!("there is no registry in {place}"))
            .hint("--registry DIR names the registry; `cofferdam skill register` makes one"));
    }
    let skills = invocation.registry.list().map_err(|error| refused(&error, SKILL_REFUSED))?;
    if invocation.flag("json") {
        print_json(&skills)?;
        return Ok(0);
    }
    if skills.is_empty() {
        let place = invocation.registry.directory().display();
        if !invocation.flag("quiet") {
            print_note(&format!("no skill is registered in {place}"), Some("cofferdam skill register DIR"));
        }
        return Ok(0);
    }
    let mut text = String::new();
    for (name, skill) in &skills {
        let may = skill.versions.iter().rev().find(|known| known.state == VersionState::Registered);
        let latest = may.or(skill.versions.last());
        let latest = latest.map_or(String::new(), |it| {
            format!("{}  {}", &it.version[..16.min(it.version.len())], state_name(it.state))
        });
        text.push_str(&format!("{name:<24}{latest}  {}\n", skill.publisher));
    }
    print(&text)?;
    Ok(0)
}

/// Shows a registered skill.
pub(super) fn show(invocation: &Invocation<'_>) -> Result<i32, CliRefusal> {
    let spec = invocation.spec()?;
    let refusal = |error: SkillError| refused(&error, SKILL_REFUSED);
    let found = invocation.registry.find(&spec.name).and_then(|skill| Ok((skill, invocation.registry.version(&spec)?)));
    let (skill, version): (Skill, _) = match found {
        Ok(found) => found,
        Err(error) => return report_faults(invocation, &error),
    };
    let kept = invocation.registry.content(&version.version).map_err(refusal)?;
    if invocation.flag("json") {
        let value = json!({
            "name": spec.name, "publisher": skill.publisher, "versions": skill.versions, "version": version.version,
            "state": version.state, "manifest": kept.manifest, "files": kept.files,
        });
        print_json(&value)?;
        return Ok(0);
    }
    let manifest = &kept.manifest;
    let mut text = format!("{}@{}  {}\n", spec.name, version.version, state_name(version.state));
    let publisher = &manifest.publisher;
    text.push_str(&format!(
        "publisher  {} <{}>, {}\n",
        text::one_line(&publisher.name),
        text::one_line(&publisher.contact),
        skill.publisher
    ));
    let wants = &manifest.sandbox;
    let spawn = if wants.allow_spawn { "processes of its own" } else { "no processes of its own" };
    text.push_str(&format!("wants      {} MiB, {} ms, {spawn}\n", wants.memory_mb, wants.timeout_ms));
    text.push_str(&format!("network    {}\n", json!(manifest.permissions.network_access)));
    text.push_str(&format!(
        "files      {} in {}\n",
        manifest.files.len(),
        text::one_line(&kept.files.to_string_lossy())
    ));
    for other in &skill.versions {
        text.push_str(&format!("version    {}  {}\n", other.version, state_name(other.state)));
    }
    print(&printable(&text))?;
    Ok(0)
}

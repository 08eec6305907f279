//! Keys, signatures, and what is registered: everything of `cofferdam skill` but runs.
//!
//! A registration is on record before the registry has it, with the reasons where it is refused. A revocation holds first and
//! is recorded then: a full disk keeps nobody from revoking.

use std::path::Path;

use cofferdam_config::skills::intake::{listing, open};
use cofferdam_config::skills::manifest::{MANIFEST_FILE, Manifest, Stage, is_name};
use cofferdam_config::skills::registry::{Registered, Skill, State};
use cofferdam_config::skills::signature::{Key, KeyError};
use cofferdam_config::skills::{Code, SkillError};
use cofferdam_engine::audit::{Durability, Entry, Trail};
use cofferdam_policy::text;
use serde_json::{Value, json};

use super::{AT_FAULT, Called, refused};
use crate::execute::{print, print_json};
use crate::report::{Refusal, print_note, printable};

/// Longest account of what is wrong that goes into a record, characters.
const TOLD: usize = 8000;

fn no_key(error: KeyError) -> Refusal {
    Refusal::new("skill", error.to_string()).split_hint()
}

pub(super) fn keygen(called: &Called<'_>) -> Result<i32, Refusal> {
    let file = called.caller.absolute(called.what("FILE")?);
    let key = Key::make(Path::new(&file)).map_err(no_key)?;
    match called.flag("json") {
        true => print_json(&json!({ "file": file, "address": key.address() }))?,
        false => print(&format!("{}\n", key.address()))?,
    }
    Ok(0)
}

pub(super) fn sign(called: &Called<'_>) -> Result<i32, Refusal> {
    let directory = called.caller.absolute(called.what("DIR")?);
    let directory = Path::new(&directory);
    let key = called.path("key").ok_or_else(|| {
        Refusal::new("arguments", "sign takes the publisher's key").hint("cofferdam skill sign DIR --key FILE")
    })?;
    let key = Key::read(&key).map_err(no_key)?;
    let told = |error: SkillError| refused(&error, AT_FAULT);
    let (root, mut text) = open(directory).map_err(told)?;
    if called.flag("files") {
        let files = listing(directory).map_err(told)?;
        text = Manifest::with_files(&text, &files).map_err(|errors| told(errors.into()))?;
    }
    let mut manifest = Manifest::decode(&text, Stage::Draft).map_err(|errors| told(errors.into()))?;
    key.sign(&mut manifest).map_err(|error| {
        Refusal::new("skill", format!("signature_verification_failed: {error}"))
            .hint(format!("write the key's address, {}, as publisher.address", key.address()))
            .code(AT_FAULT)
    })?;
    cofferdam_config::skills::put_manifest(&root, &manifest)
        .map_err(|error| Refusal::new("skill", format!("cannot write {MANIFEST_FILE}: {error}")))?;
    match called.flag("json") {
        true => print_json(&manifest)?,
        false => print(&format!("signed {} by {}\n", manifest.name, key.address()))?,
    }
    Ok(0)
}

pub(super) fn verify(called: &Called<'_>) -> Result<i32, Refusal> {
    let directory = called.caller.absolute(called.what("DIR")?);
    match called.registry.verify(Path::new(&directory)) {
        Ok(taken) if called.flag("json") => {
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
        Err(error) => return faulty(called, &error),
    }
    Ok(0)
}

/// A skill's faults as the JSON that was asked for, or as a refusal.
fn faulty(called: &Called<'_>, error: &SkillError) -> Result<i32, Refusal> {
    match error {
        SkillError::Refused(faults) if called.flag("json") => {
            print_json(&json!({ "ok": false, "errors": faults })).map(|()| AT_FAULT)
        }
        _ => Err(refused(error, AT_FAULT)),
    }
}

pub(super) fn register(called: &Called<'_>) -> Result<i32, Refusal> {
    let directory = called.caller.absolute(called.what("DIR")?);
    let directory = Path::new(&directory);
    let trail = called.trail()?;
    let record = |what: &Registered| {
        let entry = about("skill_registered", what);
        let entry = if what.repaired { entry.with("repaired", true) } else { entry };
        trail.append(entry, Durability::Durable).map(|_| ()).map_err(|error| error.to_string())
    };
    match called.registry.register(directory, record) {
        Ok(registered) => {
            match called.flag("json") {
                true => print_json(&told(&registered))?,
                false => {
                    let done = if registered.repaired { "put back the damaged files of" } else { "registered" };
                    print(&format!("{done} {}@{}\n", registered.name, registered.version))?;
                }
            }
            Ok(0)
        }
        Err(error) => {
            failed(&trail, directory, &error)?;
            faulty(called, &error)
        }
    }
}

/// Records why nothing was registered.
fn failed(trail: &Trail, directory: &Path, error: &SkillError) -> Result<(), Refusal> {
    let codes: Vec<&str> = error.codes().into_iter().map(Code::name).collect();
    let message: String = error.to_string().chars().take(TOLD).collect();
    let mut entry = Entry::new("skill_registration_failed")
        .with("error", codes.first().copied().unwrap_or("registry_failed"))
        .with("errors", codes)
        .with("message", message);
    // Whose directory it claims to be, as far as that can be told.
    let name = open(directory).ok().and_then(|(_, text)| {
        let document: Value = serde_json::from_slice(&text).ok()?;
        document.get("name")?.as_str().filter(|name| is_name(name)).map(str::to_owned)
    });
    entry.skill = name;
    let unrecorded = |e: cofferdam_engine::audit::AuditError| {
        Refusal::new("audit", format!("{error}\nthis could not be recorded: {e}")).split_hint()
    };
    trail.append(entry, Durability::Durable).map(|_| ()).map_err(unrecorded)
}

fn about(kind: &str, what: &Registered) -> Entry {
    Entry::new(kind).skill(&what.name).with("version", what.version.as_str()).with("publisher", what.publisher.as_str())
}

fn told(what: &Registered) -> Value {
    let mut value = json!({ "name": what.name, "version": what.version, "publisher": what.publisher });
    if what.repaired {
        value["repaired"] = true.into();
    }
    value
}

pub(super) fn revoke(called: &Called<'_>) -> Result<i32, Refusal> {
    let spec = called.spec()?;
    let revoked = match called.registry.revoke(&spec) {
        Ok(revoked) => revoked,
        Err(error) => return faulty(called, &error),
    };
    let recorded = called.trail().and_then(|trail| {
        revoked.iter().try_for_each(|what| {
            let written = trail.append(about("skill_revoked", what), Durability::Durable);
            written.map(|_| ()).map_err(|error| Refusal::new("audit", error.to_string()).split_hint())
        })
    });
    match called.flag("json") {
        true => print_json(&revoked.iter().map(told).collect::<Vec<_>>())?,
        false if revoked.is_empty() => print("it was revoked before\n")?,
        false => print(&revoked.iter().map(|it| format!("revoked {}@{}\n", it.name, it.version)).collect::<String>())?,
    }
    recorded.map(|()| 0).map_err(|mut refusal| {
        refusal.message = format!("it is revoked, and that could not be recorded: {}", refusal.message);
        refusal
    })
}

fn state(state: State) -> &'static str {
    match state {
        State::Registered => "registered",
        State::Revoked => "revoked",
    }
}

pub(super) fn list(called: &Called<'_>) -> Result<i32, Refusal> {
    // The default one is made by the first registration; one that is named, and is not there, is a typing error.
    if called.text("registry").is_some() && !called.registry.directory().exists() {
        let place = called.registry.directory().display();
        return Err(Refusal::new("skill", format!("there is no registry in {place}"))
            .hint("--registry DIR names the registry; `cofferdam skill register` makes one"));
    }
    let skills = called.registry.list().map_err(|error| refused(&error, AT_FAULT))?;
    if called.flag("json") {
        print_json(&skills)?;
        return Ok(0);
    }
    if skills.is_empty() {
        let place = called.registry.directory().display();
        if !called.flag("quiet") {
            print_note(&format!("no skill is registered in {place}"), Some("cofferdam skill register DIR"));
        }
        return Ok(0);
    }
    let mut text = String::new();
    for (name, skill) in &skills {
        let may = skill.versions.iter().rev().find(|known| known.state == State::Registered);
        let latest = may.or(skill.versions.last());
        let latest = latest
            .map_or(String::new(), |it| format!("{}  {}", &it.version[..16.min(it.version.len())], state(it.state)));
        text.push_str(&format!("{name:<24}{latest}  {}\n", skill.publisher));
    }
    print(&text)?;
    Ok(0)
}

pub(super) fn show(called: &Called<'_>) -> Result<i32, Refusal> {
    let spec = called.spec()?;
    let told = |error: SkillError| refused(&error, AT_FAULT);
    let found = called.registry.find(&spec.name).and_then(|skill| Ok((skill, called.registry.version(&spec)?)));
    let (skill, version): (Skill, _) = match found {
        Ok(found) => found,
        Err(error) => return faulty(called, &error),
    };
    let kept = called.registry.content(&version.version).map_err(told)?;
    if called.flag("json") {
        let value = json!({
            "name": spec.name, "publisher": skill.publisher, "versions": skill.versions, "version": version.version,
            "state": version.state, "manifest": kept.manifest, "files": kept.files,
        });
        print_json(&value)?;
        return Ok(0);
    }
    let manifest = &kept.manifest;
    let mut text = format!("{}@{}  {}\n", spec.name, version.version, state(version.state));
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
        text.push_str(&format!("version    {}  {}\n", other.version, state(other.state)));
    }
    print(&printable(&text))?;
    Ok(0)
}

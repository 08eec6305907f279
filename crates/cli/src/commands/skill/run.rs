//! `cofferdam skill run`: runs the registered content of a skill, under a policy that both its manifest and the operator allow.
//!
//! Every run is recorded in the audit trail.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cofferdam_config::skills::exchange::SkillExchange;
use cofferdam_config::skills::operator::OperatorConfig;
use cofferdam_config::skills::policy::{LimitsFrom, image_program, names_program, policy};
use cofferdam_config::skills::{FaultCode, SkillError};
use cofferdam_engine::Engine;
use cofferdam_engine::audit::{AuditEntry, Durability, hex, sha256};
use cofferdam_engine::audited_run::RunDetails;
use cofferdam_engine::backends::containers::{FOR_REFERENCES, FOR_TARBALLS, ImageCommand};
use cofferdam_policy::{BackendName, Field, FileIdentity, Policy, PolicyErrors, Root};
use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value};

use super::invocation::{Invocation, refused};
use super::rootfs;
use crate::call::code::leads_to_hidden;
use crate::call::policy_file::read_text;
use crate::call::{GRACE, RunnableCall};
use crate::caller::Caller;
use crate::execute::{execute_about, keep_changes};
use crate::outcome::presentation::Presentation;
use crate::outcome::refusal_report::print_as_outcome;
use crate::refusal::{CliRefusal, REFUSED};

/// Runs a skill and returns the exit code. A call that asks for one JSON value gets one, whatever is refused.
pub(super) fn run(invocation: &Invocation<'_>, engine: &Engine) -> Result<i32, CliRefusal> {
    let presentation = Presentation::of_skill(invocation.matches);
    match execute(invocation, engine, presentation) {
        Err(refusal) if (presentation.json || presentation.result) && !refusal.is_unwritten() => {
            print_as_outcome(&refusal, presentation)
        }
        done => done,
    }
}

fn execute(invocation: &Invocation<'_>, engine: &Engine, presentation: Presentation) -> Result<i32, CliRefusal> {
    let spec = invocation.spec()?;
    let mut operator = match invocation.path("config") {
        None => OperatorConfig::default(),
        Some(path) => operator(&path)?,
    };
    let (versioned, kept) = match invocation.registry.runnable(&spec) {
        Ok(runnable) => runnable,
        Err(error) => return Err(record_refused(invocation, &spec.name, &error)),
    };
    let files = kept.files.to_str().ok_or_else(|| CliRefusal::new("skill", "the registry's path is not UTF-8"))?;
    let arguments = invocation.arguments();
    if let Some(image) = operator.image.clone().filter(|image| !image.starts_with('/'))
        && !names_program(&kept.manifest, &operator)
    {
        operator.command = Some(image_command(invocation, engine, &image, &arguments)?);
    }
    let mut policy = policy(&kept.manifest, &operator, files, &arguments).map_err(|errors| {
        CliRefusal::new("policy", format!("manifest and operator do not fit:\n  {}", indented(&errors)))
            .hint("correct the fields of --config FILE: docs/skills.md explains each, and cofferdam skill show NAME what the skill asks for")
    })?;
    let exchange = exchange_of(invocation, presentation.dry_run)?;
    if let Some(directory) = &exchange.output {
        let own = [invocation.registry.directory().to_owned(), invocation.trail_directory()?];
        keep_changes::require_foreign(directory, &own, "--output DIR")?;
    }
    exchange.grant(&kept.manifest, &mut policy).map_err(|errors| {
        let message = format!("the skill is not given these files:\n  {}", indented(&errors));
        CliRefusal::new("policy", message).hint("cofferdam skill show NAME says what its manifest asks for")
    })?;
    // Whether it is a directory or a tarball is known only on the host.
    if let Root::Directory(path) = &policy.filesystem.root {
        let there = std::fs::metadata(path).map_err(|error| {
            CliRefusal::new("policy", format!("the image {path} of the operator's configuration cannot be used: {error}"))
                .hint("--config FILE: image = \"/path/to/rootfs\", a directory or a tarball that is there; or leave image out")
        })?;
        if there.is_file() {
            policy.filesystem.root = Root::Image(path.clone());
        } else {
            let kept = [
                ("the skills' registry", invocation.registry.directory().to_owned()),
                ("the audit trail", invocation.trail_directory()?),
            ];
            rootfs::require_no_secrets(path, &invocation.caller.homes, &kept)?;
        }
    }
    policy.backend = invocation.text("backend").and_then(BackendName::from_name).unwrap_or_default();
    for given in invocation.matches.get_many::<String>("best-effort").into_iter().flatten() {
        best_effort(&mut policy, given)?;
    }
    if let Root::Image(image) = policy.filesystem.root.clone() {
        match policy.backend {
            BackendName::Auto => policy.backend = container_for(&image, &policy, engine)?,
            backend if backend.is_container() => {}
            _ => return Err(needs_container(&image, "").hint(IMAGE_HINT)),
        }
    }
    let limits_from = LimitsFrom::of(&kept.manifest, &operator);
    let mut facts = exchange_facts(&exchange, &mut policy, invocation.caller)?;
    facts.insert("limitsFrom".into(), serde_json::to_value(limits_from).unwrap_or_default());
    facts.insert("skillVersion".into(), versioned.version.into());
    facts.insert("publisher".into(), Value::from(kept.manifest.publisher.address.to_ascii_lowercase()));
    let about = RunDetails { skill: Some(spec.name), facts };
    let call = RunnableCall {
        policy,
        tty: false,
        keep_changes: exchange.output,
        audit_trail: Some(invocation.trail_directory()?.to_string_lossy().into_owned()),
        audit_secrets: invocation.matches.get_many("audit-secret").into_iter().flatten().cloned().collect(),
        here_would_write: false,
        cut_ends_run: false,
        grace: GRACE,
        perhaps_file: None,
        masked: Vec::new(),
        kept_caches: None,
        presets: Default::default(),
    };
    execute_about(engine, call, invocation.caller, presentation, about)
}

const IMAGE_HINT: &str =
    "--backend docker, podman or oci; or --config FILE with image = \"/path/to/rootfs\", a directory, or without image";

fn needs_container(image: &str, why: &str) -> CliRefusal {
    CliRefusal::new(
        "policy",
        format!("the image {image} of the operator's configuration needs a container backend{why}"),
    )
}

/// The first backend that can run this image here: Docker or Podman for a reference, an OCI runtime for a tarball.
fn container_for(image: &str, policy: &Policy, engine: &Engine) -> Result<BackendName, CliRefusal> {
    let candidates = if image.starts_with('/') { FOR_TARBALLS } else { FOR_REFERENCES };
    let mut reasons = String::new();
    for backend in candidates {
        let mut policy = policy.clone();
        policy.backend = *backend;
        match engine.prepare(&policy) {
            Ok(_) => return Ok(*backend),
            Err(failure) => reasons.push_str(&format!("\n  {}: {}", backend.name(), failure.message)),
        }
    }
    Err(needs_container(image, &format!(", and none can run it here:{reasons}"))
        .hint("cofferdam doctor says which backends there are; cofferdam skill run --backend docker NAME asks for one"))
}

/// The image's own command, with these arguments.
fn image_command(
    invocation: &Invocation<'_>,
    engine: &Engine,
    image: &str,
    arguments: &[String],
) -> Result<Vec<String>, CliRefusal> {
    let named = invocation.text("backend").and_then(BackendName::from_name).unwrap_or_default();
    let candidates = match named {
        BackendName::Auto => FOR_REFERENCES,
        backend if backend.is_container() => &[backend],
        _ => return Err(needs_container(image, "").hint(IMAGE_HINT)),
    };
    let mut reasons = String::new();
    for backend in candidates {
        match engine.image_command(*backend, image) {
            Ok(ImageCommand { entry_point, arguments: own }) => {
                return image_program(entry_point, own, arguments).ok_or_else(|| {
                    CliRefusal::new(
                        "policy",
                        format!("nothing says what to run: neither the skill, nor its image {image}"),
                    )
                    .hint("--config FILE with command = [\"python3\", \"main.py\"], a program inside")
                });
            }
            Err(failure) => reasons.push_str(&format!("\n  {}: {}", backend.name(), failure.message)),
        }
    }
    Err(needs_container(image, &format!(", and none can say what it runs:{reasons}"))
        .hint("cofferdam doctor says which backends there are; or --config FILE with command, a program inside"))
}

/// The files that the call exchanges with the skill. Each input must be an existing file, because the sandbox mounts it.
fn exchange_of(invocation: &Invocation<'_>, dry_run: bool) -> Result<SkillExchange, CliRefusal> {
    let given = invocation.matches.get_many::<String>("input").into_iter().flatten();
    let input: Vec<String> = given.map(|file| invocation.caller.absolute(file)).collect();
    for file in &input {
        let reason = match std::fs::metadata(file) {
            Ok(there) if there.is_file() => continue,
            Ok(_) => "it is not a regular file".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(CliRefusal::new("arguments", format!("cannot show the skill {file}: {reason}"))
            .hint("--input FILE, once for each file"));
    }
    for file in &input {
        let source = std::fs::canonicalize(file).map_err(|error| {
            CliRefusal::new("arguments", format!("cannot show the skill {file}: {error}"))
                .hint("--input FILE, once for each file")
        })?;
        require_shown(file, &source, invocation.caller)?;
    }
    let output = invocation.text("output").map(|directory| invocation.caller.absolute(directory));
    // A run creates the directory; a dry run does not.
    let output_missing = dry_run && output.as_ref().is_some_and(|directory| !Path::new(directory).exists());
    if let Some(directory) = &output {
        // What does not exist yet is made below the nearest directory that does.
        let mut above = Path::new(directory).ancestors();
        let source = above.find_map(|above| {
            let rest = Path::new(directory).strip_prefix(above).ok()?;
            Some(std::fs::canonicalize(above).ok()?.components().chain(rest.components()).collect::<PathBuf>())
        });
        let source = source.unwrap_or_else(|| directory.into());
        if let Some(leads) = leads_to_hidden(directory, &source.to_string_lossy(), invocation.caller) {
            return Err(CliRefusal::new("arguments", format!("the output directory {directory} {leads}"))
                .hint("--output DIR, a directory elsewhere"));
        }
    }
    Ok(SkillExchange { input, output, output_missing, stdin: invocation.flag("interactive") })
}

/// Refuses to show a place of credentials, as `eval --file` does. Links that are followed are not the caller's word.
fn require_shown(file: &str, source: &Path, caller: &Caller) -> Result<(), CliRefusal> {
    match leads_to_hidden(file, &source.to_string_lossy(), caller) {
        None => Ok(()),
        Some(leads) => Err(CliRefusal::new("arguments", format!("the input {file} {leads}"))
            .hint("copy to another place what the skill is to see, and name the copy: --input FILE")),
    }
}

/// Most input files that a record names.
const MOST_INPUTS: usize = 64;
/// Longest input file that is hashed for the record, bytes.
const LONGEST_HASHED: u64 = 16 << 20;

/// The facts about exchanged files in the record of the start: the name inside and the size of each input, its hash unless it
/// is large, and the directory of the output. Puts the inode of each input into the policy, so that exactly the hashed file
/// is mounted.
///
/// # Errors
/// An input has become a place of credentials meanwhile.
fn exchange_facts(
    exchange: &SkillExchange,
    policy: &mut Policy,
    caller: &Caller,
) -> Result<Map<String, Value>, CliRefusal> {
    let mut facts = Map::new();
    if !exchange.input.is_empty() {
        let mut named = Vec::new();
        for path in &exchange.input {
            named.push(input_fact(path, policy, caller)?);
        }
        named.truncate(MOST_INPUTS);
        facts.insert("input".into(), Value::Array(named));
        facts.insert("inputCount".into(), exchange.input.len().into());
    }
    if let Some(directory) = &exchange.output {
        facts.insert("output".into(), directory.as_str().into());
    }
    Ok(facts)
}

fn input_fact(path: &str, policy: &mut Policy, caller: &Caller) -> Result<Value, CliRefusal> {
    let mut fact = serde_json::json!({ "name": path.rsplit('/').next().unwrap_or_default() });
    // Non-blocking, because the file may have been replaced by a FIFO.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(std::fs::File::from) else { return Ok(fact) };
    let Some(about) = file.metadata().ok().filter(std::fs::Metadata::is_file) else { return Ok(fact) };
    // Of the file that is open, since a link may lead elsewhere by now.
    if let Ok(source) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        require_shown(path, &source, caller)?;
    }
    let identity = FileIdentity { device: about.dev(), inode: about.ino() };
    policy.filesystem.identities.insert(path.to_owned(), identity);
    let bytes = about.len();
    fact["bytes"] = bytes.into();
    let mut content = Vec::new();
    if bytes <= LONGEST_HASHED
        && file.take(LONGEST_HASHED + 1).read_to_end(&mut content).is_ok_and(|read| read as u64 == bytes)
    {
        fact["sha256"] = hex(&sha256(&content)).into();
    }
    Ok(fact)
}

/// The refusal of a skill that may not run. Records it.
fn record_refused(invocation: &Invocation<'_>, name: &str, error: &SkillError) -> CliRefusal {
    let mut refusal = refused(error, REFUSED);
    let code = error.codes().first().map_or("registry_failed", |code: &FaultCode| code.name());
    let message: String = error.to_string().chars().take(8000).collect();
    let entry = AuditEntry::new("sandbox_error")
        .skill(name)
        .with("error", message)
        .with("step", code)
        .with("exitCode", REFUSED);
    let recorded = invocation.trail().and_then(|trail| {
        trail.append(entry, Durability::Durable).map_err(|error| CliRefusal::new("audit", error.to_string()))
    });
    if let Err(unrecorded) = recorded {
        refusal.message = format!("{}\nthis could not be recorded: {}", refusal.message, unrecorded.message);
    }
    refusal
}

fn operator(path: &Path) -> Result<OperatorConfig, CliRefusal> {
    let shown = path.display();
    let text = read_text(&path.to_string_lossy())
        .map_err(|error| {
            CliRefusal::new("policy", format!("cannot read the operator's configuration {shown}: {error}"))
        })?
        .map_err(|_| CliRefusal::new("policy", format!("the operator's configuration {shown} is too long")))?;
    OperatorConfig::decode(&text).map_err(|errors| {
        CliRefusal::new("policy", format!("the operator's configuration {shown} is refused:\n  {}", indented(&errors)))
    })
}

fn indented(errors: &PolicyErrors) -> String {
    errors.to_string().replace('\n', "\n  ")
}

/// Applies `--best-effort`, which takes only limits: files and network of a skill are always enforced in full.
fn best_effort(policy: &mut Policy, given: &str) -> Result<(), CliRefusal> {
    for name in given.split(',') {
        let limits = Field::ALL.iter().filter(|field| field.name().starts_with("limits."));
        let meant: Vec<Field> = limits.filter(|field| name == "limits" || field.name() == name).copied().collect();
        if meant.is_empty() {
            return Err(CliRefusal::new("arguments", format!("--best-effort: `{name}` is no limit"))
                .hint("--best-effort=limits.memory_mb, or --best-effort for all of them"));
        }
        meant.into_iter().for_each(|field| policy.allow_partial(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_input_file_is_the_one_that_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("note.txt");
        std::fs::write(&file, "hello").unwrap();
        let path = file.to_str().unwrap().to_owned();
        let mut policy = Policy::base();
        let facts = exchange_facts(
            &SkillExchange { input: vec![path.clone()], ..SkillExchange::default() },
            &mut policy,
            &Caller::default(),
        );
        let facts = facts.unwrap();
        assert_eq!(facts["input"][0]["sha256"], hex(&sha256(b"hello")));
        let about = std::fs::metadata(&file).unwrap();
        let identity = FileIdentity { device: about.dev(), inode: about.ino() };
        assert_eq!(policy.filesystem.identities.get(&path), Some(&identity));
    }
}

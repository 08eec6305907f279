//! `cofferdam skill run`: the registered content, under the narrower of manifest and operator, always on record.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cofferdam_config::skills::exchange::Exchange;
use cofferdam_config::skills::operator::SandboxConfig;
use cofferdam_config::skills::policy::{LimitsFrom, image_program, names_program, policy};
use cofferdam_config::skills::{Code, SkillError};
use cofferdam_engine::Engine;
use cofferdam_engine::audit::{Durability, Entry, hex, sha256};
use cofferdam_engine::audited_run::About;
use cofferdam_engine::backends::container::ImageCommand;
use cofferdam_policy::{Backend, Field, FileIdentity, Policy, PolicyErrors, Root};
use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value};

use super::{Called, image, refused};
use crate::call::{Call, read_policy_text};
use crate::execute::{self, Presentation, execute_about};
use crate::report::{REFUSED, Refusal};

/// Runs a skill, and returns the exit code. Whoever asked for one JSON value gets one, whatever is refused.
pub(super) fn run(called: &Called<'_>, engine: &Engine) -> Result<i32, Refusal> {
    let presentation = Presentation {
        json: called.flag("json"),
        result: called.flag("result"),
        quiet: called.flag("quiet"),
        dry_run: called.flag("dry-run"),
    };
    match started(called, engine, presentation) {
        Err(refusal) if (presentation.json || presentation.result) && refusal.step != "output" => {
            execute::told(&refusal, presentation)
        }
        done => done,
    }
}

fn started(called: &Called<'_>, engine: &Engine, presentation: Presentation) -> Result<i32, Refusal> {
    let spec = called.spec()?;
    let mut operator = match called.path("config") {
        None => SandboxConfig::default(),
        Some(path) => operator(&path)?,
    };
    let (versioned, kept) = match called.registry.runnable(&spec) {
        Ok(runnable) => runnable,
        Err(error) => return Err(not_started(called, &spec.name, &error)),
    };
    let files = kept.files.to_str().ok_or_else(|| Refusal::new("skill", "the registry's path is not UTF-8"))?;
    let arguments: Vec<String> = called.matches.get_many("args").into_iter().flatten().cloned().collect();
    if let Some(image) = operator.image.clone().filter(|image| !image.starts_with('/'))
        && !names_program(&kept.manifest, &operator)
    {
        operator.command = Some(image_command(called, engine, &image, &arguments)?);
    }
    let mut policy = policy(&kept.manifest, &operator, files, &arguments).map_err(|errors| {
        Refusal::new("policy", format!("manifest and operator do not fit:\n  {}", indented(&errors)))
            .hint("correct the fields of --config FILE: docs/skills.md tells each, and cofferdam skill show NAME what the skill asks for")
    })?;
    let exchange = exchange(called, presentation.dry_run)?;
    exchange.grant(&kept.manifest, &mut policy).map_err(|errors| {
        let message = format!("the skill is not given these files:\n  {}", indented(&errors));
        Refusal::new("policy", message).hint("cofferdam skill show NAME says what its manifest asks for")
    })?;
    // Only the host tells a directory from a tarball.
    if let Root::Directory(path) = &policy.filesystem.root {
        let there = std::fs::metadata(path).map_err(|error| {
            Refusal::new("policy", format!("the image {path} of the operator's configuration cannot be used: {error}"))
                .hint("--config FILE: image = \"/path/to/rootfs\", a directory or a tarball that is there; or leave image out")
        })?;
        if there.is_file() {
            policy.filesystem.root = Root::Image(path.clone());
        } else {
            let kept = [
                ("the skills' registry", called.registry.directory().to_owned()),
                ("the audit trail", called.trail_directory()?),
            ];
            image::check(path, &called.caller.homes, &kept)?;
        }
    }
    policy.backend = called.text("backend").and_then(Backend::from_name).unwrap_or_default();
    for given in called.matches.get_many::<String>("best-effort").into_iter().flatten() {
        best_effort(&mut policy, given)?;
    }
    if let Root::Image(image) = policy.filesystem.root.clone() {
        match policy.backend {
            Backend::Auto => policy.backend = container_for(&image, &policy, engine)?,
            backend if backend.is_container() => {}
            _ => return Err(needs_container(&image, "").hint(IMAGE_HINT)),
        }
    }
    let limits_from = LimitsFrom::of(&kept.manifest, &operator);
    let mut facts = exchanged(&exchange, &mut policy);
    facts.insert("limitsFrom".into(), serde_json::to_value(limits_from).unwrap_or_default());
    facts.insert("skillVersion".into(), versioned.version.into());
    facts.insert("publisher".into(), Value::from(kept.manifest.publisher.address.to_ascii_lowercase()));
    let about = About { skill: Some(spec.name), facts };
    let call = Call {
        policy,
        tty: false,
        keep_changes: exchange.output,
        audit_trail: Some(called.trail_directory()?.to_string_lossy().into_owned()),
        audit_secrets: called.matches.get_many("audit-secret").into_iter().flatten().cloned().collect(),
        perhaps_file: None,
    };
    execute_about(engine, call, called.caller, presentation, about)
}

const IMAGE_HINT: &str =
    "--backend docker, podman or oci; or --config FILE with image = \"/path/to/rootfs\", a directory, or without image";

fn needs_container(image: &str, why: &str) -> Refusal {
    Refusal::new("policy", format!("the image {image} of the operator's configuration needs a container backend{why}"))
}

/// The first of the backends that can run this image here: a reference is Docker's or Podman's, a tarball an OCI runtime's.
fn container_for(image: &str, policy: &Policy, engine: &Engine) -> Result<Backend, Refusal> {
    let candidates: &[Backend] =
        if image.starts_with('/') { &[Backend::Oci] } else { &[Backend::Docker, Backend::Podman] };
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

/// What the image runs when nothing else is named, where it says it.
fn image_command(
    called: &Called<'_>,
    engine: &Engine,
    image: &str,
    arguments: &[String],
) -> Result<Vec<String>, Refusal> {
    let named = called.text("backend").and_then(Backend::from_name).unwrap_or_default();
    let candidates = match named {
        Backend::Auto => vec![Backend::Docker, Backend::Podman],
        backend if backend.is_container() => vec![backend],
        _ => return Err(needs_container(image, "").hint(IMAGE_HINT)),
    };
    let mut reasons = String::new();
    for backend in candidates {
        match engine.image_command(backend, image) {
            Ok(ImageCommand { entry_point, arguments: own }) => {
                return image_program(entry_point, own, arguments).ok_or_else(|| {
                    Refusal::new(
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

/// What the command line exchanges with the skill. Each input is a file that is there: the sandbox's mount of it follows.
fn exchange(called: &Called<'_>, dry_run: bool) -> Result<Exchange, Refusal> {
    let given = called.matches.get_many::<String>("input").into_iter().flatten();
    let input: Vec<String> = given.map(|file| called.caller.absolute(file)).collect();
    for file in &input {
        let wrong = match std::fs::metadata(file) {
            Ok(there) if there.is_file() => continue,
            Ok(_) => "it is not a regular file".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Refusal::new("arguments", format!("cannot show the skill {file}: {wrong}"))
            .hint("--input FILE, once for each file"));
    }
    let output = called.text("output").map(|directory| called.caller.absolute(directory));
    // The run makes the directory; a plan makes nothing.
    let output_missing = dry_run && output.as_ref().is_some_and(|directory| !Path::new(directory).exists());
    Ok(Exchange { input, output, output_missing, stdin: called.flag("interactive") })
}

/// Most input files that a record names, and most bytes of one that is hashed for it.
const NAMED: usize = 64;
const HASHED: u64 = 16 << 20;

/// What the record of the start says of the files that are exchanged: each input by its name inside, its size and, unless it
/// is large, its hash; and the directory of the output. The policy mounts the very files that were hashed, or none.
fn exchanged(exchange: &Exchange, policy: &mut Policy) -> Map<String, Value> {
    let mut facts = Map::new();
    if !exchange.input.is_empty() {
        let named = exchange.input.iter().take(NAMED).map(|path| input(path, policy)).collect();
        facts.insert("input".into(), Value::Array(named));
        facts.insert("inputCount".into(), exchange.input.len().into());
    }
    if let Some(directory) = &exchange.output {
        facts.insert("output".into(), directory.as_str().into());
    }
    facts
}

fn input(path: &str, policy: &mut Policy) -> Value {
    let mut fact = serde_json::json!({ "name": path.rsplit('/').next().unwrap_or_default() });
    // A pipe that has come into its place meanwhile is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(std::fs::File::from) else { return fact };
    let Some(about) = file.metadata().ok().filter(std::fs::Metadata::is_file) else { return fact };
    let identity = FileIdentity { device: about.dev(), inode: about.ino() };
    policy.filesystem.identities.insert(path.to_owned(), identity);
    let bytes = about.len();
    fact["bytes"] = bytes.into();
    let mut content = Vec::new();
    if bytes <= HASHED && file.take(HASHED + 1).read_to_end(&mut content).is_ok_and(|read| read as u64 == bytes) {
        fact["sha256"] = hex(&sha256(&content)).into();
    }
    fact
}

/// The refusal of a skill that may not run, which is on record as well.
fn not_started(called: &Called<'_>, name: &str, error: &SkillError) -> Refusal {
    let mut refusal = refused(error, REFUSED);
    let code = error.codes().first().map_or("registry_failed", |code: &Code| code.name());
    let message: String = error.to_string().chars().take(8000).collect();
    let entry =
        Entry::new("sandbox_error").skill(name).with("error", message).with("step", code).with("exitCode", REFUSED);
    let recorded = called.trail().and_then(|trail| {
        trail.append(entry, Durability::Durable).map_err(|error| Refusal::new("audit", error.to_string()))
    });
    if let Err(unrecorded) = recorded {
        refusal.message = format!("{}\nthis could not be recorded: {}", refusal.message, unrecorded.message);
    }
    refusal
}

fn operator(path: &Path) -> Result<SandboxConfig, Refusal> {
    let shown = path.display();
    let text = read_policy_text(&path.to_string_lossy())
        .map_err(|error| Refusal::new("policy", format!("cannot read the operator's configuration {shown}: {error}")))?
        .map_err(|_| Refusal::new("policy", format!("the operator's configuration {shown} is too long")))?;
    SandboxConfig::decode(&text).map_err(|errors| {
        Refusal::new("policy", format!("the operator's configuration {shown} is refused:\n  {}", indented(&errors)))
    })
}

fn indented(errors: &PolicyErrors) -> String {
    errors.to_string().replace('\n', "\n  ")
}

/// Limits alone: what a skill can see and reach is never held by halves.
fn best_effort(policy: &mut Policy, given: &str) -> Result<(), Refusal> {
    for name in given.split(',') {
        let limits = Field::ALL.iter().filter(|field| field.name().starts_with("limits."));
        let meant: Vec<Field> = limits.filter(|field| name == "limits" || field.name() == name).copied().collect();
        if meant.is_empty() {
            return Err(Refusal::new("arguments", format!("--best-effort: `{name}` is no limit"))
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
    fn an_input_that_is_recorded_is_mounted_as_the_file_that_was_hashed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("note.txt");
        std::fs::write(&file, "hello").unwrap();
        let path = file.to_str().unwrap().to_owned();
        let mut policy = Policy::base();
        let facts = exchanged(&Exchange { input: vec![path.clone()], ..Exchange::default() }, &mut policy);
        assert_eq!(facts["input"][0]["sha256"], hex(&sha256(b"hello")));
        let about = std::fs::metadata(&file).unwrap();
        let identity = FileIdentity { device: about.dev(), inode: about.ino() };
        assert_eq!(policy.filesystem.identities.get(&path), Some(&identity));
    }
}

//! Runs one attack on one backend as one user and says what that showed: held, not claimed, a hole, or that the trial
//! itself is worthless.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cofferdam_policy::{BackendName, Field};
use cofferdam_test_containers::Engine;
use cofferdam_test_containers::engine::GROUP;
use serde_json::Value;

use crate::attack::{ATTACK, Attack, Class, End, Setting, Streams, Twin, Victim};
use crate::case::{Case, stream};
use crate::host::{Host, User};
use crate::launch::{self, Files};
use crate::proof::{Before, await_end, worked};
use crate::run::Run;

/// What one trial showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// The attack failed and its twin worked.
    Held(String),
    /// The backend says that it cannot hold the field, and refuses when it is required: which, how much of it holds, and why.
    NotClaimed(String),
    /// This host has no such victim.
    NoVictim(String),
    /// The attack worked though the policy was enforced in full.
    Hole(String),
    /// The trial proves nothing: a victim, a twin or the command itself failed.
    Broken(String),
}

/// What the command line calls a backend.
pub fn backend_name(backend: BackendName) -> &'static str {
    backend.name()
}

/// How a backend refuses tracing that cannot trace.
const UNOBSERVED: &str = "cannot observe calls";

/// Attacks whose means are signals to the program itself.
const SIGNALS_ITSELF: &[&str] = &["stop-itself", "forged-sigsys-queued"];

/// One attack, one backend, one user.
pub fn trial(host: &Host, attack: &Attack, backend: BackendName, user: User) -> Cell {
    if let Some(path) = attack.needs
        && fs::symlink_metadata(path).is_err()
    {
        return Cell::NoVictim(format!("no {path} on this host"));
    }
    if attack.root_only && user != User::Root {
        return Cell::NoVictim("only root can be such a caller".into());
    }
    // There the program is the first process itself: it has nobody to look at, and its own signals do not reach it.
    let about_pid1 = matches!(attack.twin, Twin::NaiveInit) || SIGNALS_ITSELF.contains(&attack.name);
    if about_pid1 && matches!(backend, BackendName::Bubblewrap | BackendName::Nsjail) {
        return Cell::NoVictim("the program is pid 1".into());
    }
    match attempt(host, attack, backend, user) {
        Ok(cell) => cell,
        Err(message) => Cell::Broken(message),
    }
}

fn attempt(host: &Host, attack: &Attack, backend: BackendName, user: User) -> Result<Cell, String> {
    let mut case = Case::new(host, user, attack, backend)?;
    let required = required(attack, backend);
    let spec = Spec { settings: attack.settings, args: attack.args, required: &required, backend };
    let (run, before) = sandboxed(&case, attack, &spec)?;
    if refusal(&run).is_some_and(|message| message.contains("gives no terminal")) {
        return Ok(Cell::NotClaimed("a terminal, not at all: the backend gives none".into()));
    }
    if attack.settings.contains(&Setting::Trace) && refusal(&run).is_some_and(|message| message.contains(UNOBSERVED)) {
        return Ok(Cell::NotClaimed("it observes no calls, and refuses to trace them".into()));
    }
    if let Some(field) = refused(&required, &run) {
        return Ok(match claims(&case, attack.settings, backend, field)? {
            Some(why) => Cell::NotClaimed(why),
            None => Cell::Broken(format!("{field} refused though support says full: {}", run.account())),
        });
    }
    if attack.streams != Streams::Json
        && run.finished.code == 125
        && let Some(field) = refused_as_json(&case, attack, &spec)?
    {
        return Ok(match claims(&case, attack.settings, backend, field)? {
            Some(why) => Cell::NotClaimed(why),
            None => Cell::Broken(format!("{field} refused though support says full: {}", run.account())),
        });
    }
    // A container ends when its init finds that the killed owner's end of a pipe is closed, as soon as it gets to run.
    if backend.is_container()
        && matches!(attack.proof, crate::attack::Proof::Left)
        && attack.caller.contains(&"--kill-after")
    {
        await_end(&case.token);
    }
    let seen = worked(&mut case, attack.proof, &before, &run);
    let only_proof = attack.held.contains(&End::Any);
    if seen == Some(true) || (!only_proof && run.says_escaped()) {
        return Ok(match attack.documented {
            Some(paragraph) => Cell::NotClaimed(format!("SECURITY.md: {paragraph}")),
            None => Cell::Hole(run.account()),
        });
    }
    if !was_held(attack, &run) {
        return Ok(Cell::Broken(format!("neither held nor escaped: {}", run.account())));
    }
    drop(case);
    if let Err(message) = twin(host, attack, backend, user) {
        return Ok(Cell::Broken(format!("the allowed twin fails: {message}")));
    }
    Ok(Cell::Held(run.account()))
}

/// The promises that the attack would break. What the host's view shows is mounted in a container, so that it is the
/// promise of mounts that an attack on it would break; where it could write to others, that promise is not made.
fn required(attack: &Attack, backend: BackendName) -> Vec<Field> {
    let mut fields = attack.fields.to_vec();
    let writes =
        attack.settings.iter().any(|s| matches!(s, Setting::Rw | Setting::RwExec | Setting::Cow | Setting::Bind(..)));
    let aims = attack.args.iter().any(|text| text.contains("{out}"));
    if backend.is_container() && aims && !writes && !fields.contains(&Field::Mounts) {
        fields.push(Field::Mounts);
    }
    fields
}

fn was_held(attack: &Attack, run: &Run) -> bool {
    // Killed before it began is not held.
    if attack.caller.contains(&"--kill-after") && !run.output.contains("STARTED") {
        return false;
    }
    if run.exit() == Some(10) && run.output.lines().any(|l| l.contains("BLOCKED")) {
        return true;
    }
    attack.held.iter().any(|end| match end {
        End::Filter => run.text("outcome") == "violation" || run.signal() == Some(31),
        End::Limit => {
            matches!(run.text("outcome"), "limit_exceeded" | "timed_out" | "signalled")
                || (run.outcome.is_none() && (run.finished.code == 124 || run.finished.code > 128))
        }
        End::Exec => {
            let error = run.outcome.as_ref().and_then(|outcome| outcome.get("error"));
            let text = |key: &str| error.and_then(|e| e.get(key)).and_then(Value::as_str).unwrap_or_default();
            run.finished.code == 126 && text("step") == "exec" && text("message").contains("(EPERM)")
        }
        End::Any => {
            run.text("outcome") != "setup_failed"
                && run.exit() != Some(20)
                && run.exit() != Some(125)
                && (run.outcome.is_some() || attack.streams != Streams::Json)
        }
    })
}

/// The field for which the command refused to start: one that the attack requires, or the step that failed.
fn refused(fields: &[Field], run: &Run) -> Option<Field> {
    let message = refusal(run)?;
    let required = fields.iter().copied().find(|field| message.contains(field.name()));
    required.or_else(|| step_field(run))
}

/// The same question where the streams were the caller's own: the outcome is asked for in another run.
fn refused_as_json(case: &Case<'_>, attack: &Attack, spec: &Spec<'_>) -> Result<Option<Field>, String> {
    let asking = Attack { streams: Streams::Json, caller: &[], ..*attack };
    let (run, _) = sandboxed(case, &asking, spec)?;
    Ok(refused(spec.required, &run))
}

fn refusal(run: &Run) -> Option<String> {
    match &run.outcome {
        Some(outcome) if run.text("outcome") == "setup_failed" => outcome.get("error").map(Value::to_string),
        Some(_) => None,
        None if run.finished.code == 125 => Some(format!("{}{}{}", run.finished.stderr, run.errors, run.output)),
        None => None,
    }
}

/// The field whose policy key the refusal names as the step, such as `filesystem.mounts[1]`.
fn step_field(run: &Run) -> Option<Field> {
    let step = run.outcome.as_ref()?.get("error")?.get("step")?.as_str()?;
    Field::ALL.iter().copied().find(|field| step.starts_with(field.name()))
}

/// How much less than everything the backend claims for a field under this policy when nothing is required, and why; `None`
/// when it claims all of it.
fn claims(case: &Case<'_>, settings: &[Setting], backend: BackendName, field: Field) -> Result<Option<String>, String> {
    // The same settings have the same answer for every case: paths differ, but not in kind.
    static KNOWN: Mutex<BTreeMap<(&str, User, String), Run>> = Mutex::new(BTreeMap::new());
    let key = (backend_name(backend), case.user, format!("{settings:?}"));
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    let run = match known {
        Some(run) => run,
        None => {
            let attack = Attack { args: &["noop"], ..ATTACK };
            let spec = Spec { settings, args: attack.args, required: &[], backend };
            let (run, _) = sandboxed(case, &attack, &spec)?;
            KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, run.clone());
            run
        }
    };
    let told = |value: Option<&Value>| value.and_then(Value::as_str).map(|text| placeless(text, &case.host.base));
    // What a backend cannot do at all it refuses even with best effort, naming the policy's key.
    if step_field(&run) == Some(field) {
        let error = run.outcome.as_ref().and_then(|o| o.get("error"));
        let why = told(error.and_then(|e| e.get("message"))).unwrap_or_default();
        return Ok(Some(format!("`{field}`, not at all: {why}")));
    }
    let applied = run.outcome.as_ref().and_then(|o| o.get("enforcement")).and_then(|e| e.get(field.name()));
    let why = told(applied.and_then(|a| a.get("reason"))).unwrap_or_default();
    match applied.and_then(|a| a.get("strength")).and_then(Value::as_str) {
        Some("full") => Ok(None),
        Some("partial") => Ok(Some(format!("`{field}`, in part: {why}"))),
        Some(_) => Ok(Some(format!("`{field}`, not at all: {why}"))),
        None => Err(format!("refused for {field}, and with best effort: {}", run.account())),
    }
}

/// A text without names that differ from case to case and from host to host: the victims' places and the caller's cgroup.
fn placeless(text: &str, base: &Path) -> String {
    let base = format!("{}/", base.display());
    // Of a list of names the first stands there, and how many more there are.
    let text = match text.strip_prefix(&base).and_then(|rest| rest.split_once(": ")) {
        Some((_, about)) => format!("PATH: {about}"),
        None => text.to_owned(),
    };
    let words = text.split(' ').map(|word| match word {
        word if word.starts_with(&base) => "PATH",
        word if word.starts_with("/sys/fs/cgroup/") => "its cgroup",
        word => word,
    });
    words.collect::<Vec<&str>>().join(" ")
}

/// Why a backend cannot be used here by this user, asked once.
pub fn backend_missing(host: &Host, backend: BackendName, user: User) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<(&str, User), Option<String>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = known.entry((backend_name(backend), user)).or_insert_with(|| {
        let attack = Attack { args: &["noop"], ..ATTACK };
        let spec = Spec { settings: &[], args: attack.args, required: &[], backend };
        let tried = Case::new(host, user, &attack, backend).and_then(|case| sandboxed(&case, &attack, &spec));
        match tried {
            Ok((run, _)) if run.says_escaped() => None,
            Ok((run, _)) => Some(run.account()),
            Err(message) => Some(message),
        }
    });
    asked.clone()
}

struct Spec<'a> {
    settings: &'a [Setting],
    args: &'a [&'static str],
    required: &'a [Field],
    backend: BackendName,
}

fn argv(case: &Case<'_>, args: &[&str]) -> Vec<String> {
    // A first argument with a slash is a program of its own, such as a setuid one or the dynamic linker.
    let own = args.first().is_some_and(|a| a.contains('/'));
    let program = (!own).then(|| case.host.attack.display().to_string());
    program.into_iter().chain(args.iter().map(|a| case.fill(a))).collect()
}

fn sandboxed(case: &Case<'_>, attack: &Attack, spec: &Spec<'_>) -> Result<(Run, Before), String> {
    let write = |name: &str, args: &[&str]| {
        let policy = case.policy(spec.settings, spec.backend, spec.required, &argv(case, args));
        policy.validate().map_err(|e| format!("the policy of the trial is not valid: {e}"))?;
        let path = case.dir.join(name);
        fs::write(&path, policy.to_json_pretty()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok::<_, String>(path.display().to_string())
    };
    let keep = spec.settings.contains(&Setting::Keep).then(|| case.path("{keep}"));
    let json = attack.streams == Streams::Json;
    let mut line = launch::cofferdam(case.host, &write("policy.json", spec.args)?, json, keep.as_ref());
    if attack.streams == Streams::Terminal {
        line.push("-t".into());
    }
    let other = match attack.victims.iter().find_map(|v| if let Victim::Sandbox(args) = v { Some(*args) } else { None })
    {
        Some(args) => Some(launch::cofferdam(case.host, &write("other.json", args)?, true, None)),
        None => None,
    };
    let (mut run, before) = launched(case, attack, Some(spec.backend), &[], &line, other.as_deref())?;
    if json {
        let outcome: Option<Value> = serde_json::from_str(run.finished.stdout.trim()).ok();
        if outcome.is_none() && run.finished.code != 125 {
            return Err(format!("no outcome: {}", run.account()));
        }
        let text =
            |key: &str| outcome.as_ref().and_then(|o| o.get(key)).and_then(Value::as_str).unwrap_or("").to_owned();
        run.output = text("stdout") + &run.output[run.finished.stdout.len()..];
        run.errors = text("stderr");
        run.outcome = outcome;
    }
    Ok((run, before))
}

fn launched(
    case: &Case<'_>,
    attack: &Attack,
    backend: Option<BackendName>,
    more: &[&str],
    line: &[String],
    other: Option<&[String]>,
) -> Result<(Run, Before), String> {
    let mut options: Vec<String> = attack.caller.iter().map(|o| case.fill(o)).collect();
    if backend == Some(BackendName::Docker) && case.uid().is_some() {
        // An ordinary user is let in by a group. Who is in it is root to the engine: it is the engine's walls that are tried.
        options.extend(["--group".to_owned(), GROUP.to_string()]);
    }
    options.extend(more.iter().map(|o| (*o).to_owned()));
    // Should a mount attack of root's succeed, it must not be the machine's own mounts that change.
    let own_mounts = options.iter().any(|o| o == "--shared-mounts");
    if attack.class == Class::Mounts && !own_mounts && case.user == User::Root && case.host.root && more.is_empty() {
        options.push("--private-mounts".into());
    }
    let (mut files, mut watched) = (Files::default(), None);
    match attack.streams {
        Streams::Json => {}
        Streams::Pty | Streams::Terminal => options.push("--pty".into()),
        Streams::File => {
            files.stdin = Some(stream(case, "stdin")?);
            let stdout = stream(case, "stdout")?;
            watched = Some(stdout.try_clone().map_err(|e| e.to_string())?);
            files.stdout = Some(stdout);
            files.stderr = Some(stream(case, "stderr")?);
        }
    }
    let before = Before::look(case, attack.proof, watched);
    let mut variables = vec![("COFFERDAM_SECRET", case.secret.clone())];
    if let Some(backend) = backend.filter(|backend| backend.is_container()) {
        let state = case.host.state(case.uid()).unwrap_or_else(|| case.path("{state}"));
        variables.push(("COFFERDAM_STATE", state.display().to_string()));
        variables.extend(case.host.engine(backend, case.user)?.map(Engine::environment));
    }
    let beside = match other {
        Some(line) => Some(launch::start(case.host, case.uid(), &[], line, &variables, Files::default())?),
        None => None,
    };
    let finished = launch::start(case.host, case.uid(), &options, line, &variables, files)?.finish()?;
    let mut run = Run { output: finished.stdout.clone(), finished, kept: case.path("{keep}"), ..Run::default() };
    if attack.streams == Streams::File {
        let read = |name: &str| fs::read(case.dir.join(name)).map(|b| String::from_utf8_lossy(&b).into_owned());
        run.output = read("stdout").map_err(|e| e.to_string())?;
        run.errors = read("stderr").map_err(|e| e.to_string())?;
    }
    if let Some(beside) = beside {
        run.other = beside.finish()?.stdout;
        if run.other.contains(&case.secret) {
            run.output.push_str(&format!("\nESCAPED the other sandbox showed {}", case.secret));
        }
    }
    Ok((run, before))
}

fn twin(host: &Host, attack: &Attack, backend: BackendName, user: User) -> Result<(), String> {
    let as_user = if matches!(attack.twin, Twin::AsRoot | Twin::PrivateMounts) { User::Root } else { user };
    if let Some(missing) = host.user_missing(as_user) {
        return Err(format!("{missing}: run the suite as root"));
    }
    let mut case = Case::new(host, as_user, attack, backend)?;
    let more: &[&str] = match attack.twin {
        Twin::PrivateMounts => &["--private-mounts"],
        Twin::NaiveInit => &["--naive-init"],
        _ => &[],
    };
    let inside = match attack.twin {
        Twin::Inside(settings, args) | Twin::Dose(settings, args, _) => {
            let args = if args.is_empty() { attack.args } else { args };
            Some(Spec { settings, args, required: &[], backend })
        }
        _ => None,
    };
    let (mut run, before) = match &inside {
        Some(spec) => sandboxed(&case, attack, spec)?,
        None => {
            let line = argv(&case, attack.args);
            let other = attack
                .victims
                .iter()
                .find_map(|v| if let Victim::Sandbox(args) = v { Some(argv(&case, args)) } else { None });
            launched(&case, attack, None, more, &line, other.as_deref())?
        }
    };
    if let Twin::Dose(_, _, fine) = attack.twin {
        return if fine(&run) { Ok(()) } else { Err(run.account()) };
    }
    let seen = worked(&mut case, attack.proof, &before, &run);
    if run.output.is_empty() && run.other.contains("ESCAPED") {
        run.output.clone_from(&run.other);
    }
    match seen {
        Some(false) => Err(format!("the host sees nothing of it: {}", run.account())),
        _ if attack.held.contains(&End::Any) || run.says_escaped() => Ok(()),
        _ => Err(run.account()),
    }
}

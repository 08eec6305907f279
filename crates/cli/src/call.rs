//! One call of `run` or `eval`: from parsed arguments to a complete, validated policy and how to present the run.
//!
//! ```text
//! defaults or --policy ─ options, in their order ─ interpreter ─ terminal ─ validate ─▶ Call
//! ```
//!
//! Reads what the arguments name (policy file, code on standard input) and nothing else. Starts nothing.

use std::io::Read as _;
use std::path::Path;

use cofferdam_compat::{self as compat, Form};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::{
    Access, Backend, MAX_POLICY_BYTES, Mount, Network, NetworkLimits, NetworkMode, Policy, PolicyError, PolicyErrors,
    Root, Stdin,
};

use clap::ArgMatches;
use clap::parser::ValueSource;
use cofferdam_config::environments::{self, CodeInput, credentials, deny_dot_names, deny_moved, eval_base};
use cofferdam_profiles::Id;

use crate::caller::Caller;
use crate::discover::Tree;
use crate::environment::{self, Code};
use crate::hints::quoted;
use crate::options::{Draft, POLICY_OPTIONS, PolicyOption, Takes, option_of_path};
use crate::report::Refusal;
use crate::resolve::Chosen;

/// Most code that is taken from standard input, bytes.
const MAX_CODE_BYTES: u64 = 64 << 20;

/// A call, ready to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What the sandbox may do: validated.
    pub policy: Policy,
    /// Whether the program gets a terminal.
    pub tty: bool,
    /// Where changes of copy-on-write mounts are kept, absolute.
    pub keep_changes: Option<String>,
    /// The audit trail in which the run is recorded, absolute.
    pub audit_trail: Option<String>,
    /// Names of variables whose values are taken out of what is recorded.
    pub audit_secrets: Vec<String>,
    /// The code of an `eval` where it is short enough to be meant as the name of a file.
    pub perhaps_file: Option<String>,
}

/// A policy that a call starts from instead of the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// As decoded.
    pub policy: Policy,
    /// The file that it came from.
    pub origin: String,
}

/// Makes the call out of the arguments of `run` (`eval` is false) or `eval`, without a profile.
pub fn make(matches: &ArgMatches, eval: bool, caller: &Caller, tree: &dyn Tree) -> Result<Call, Refusal> {
    make_from(matches, eval, caller, tree, None, None)
}

/// The same, starting from what a profile compiled to, and in an environment that is defined.
pub fn make_from(
    matches: &ArgMatches,
    eval: bool,
    caller: &Caller,
    tree: &dyn Tree,
    profile: Option<Base>,
    chosen: Option<&Chosen>,
) -> Result<Call, Refusal> {
    let flag = |name: &str| matches.get_flag(name);
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let code = if eval { text("code") } else { None };
    let from_file = text("policy");
    let stdin_users: Vec<&str> = [
        (from_file == Some("-")).then_some("--policy -"),
        (code == Some("-")).then_some("code from -"),
        (flag("interactive") || flag("tty")).then_some("-i or -t"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if stdin_users.len() > 1 {
        return Err(Refusal::new("arguments", format!("{} would both read standard input", stdin_users.join(" and ")))
            .hint("put the policy or the code into a file: --policy FILE, --file FILE"));
    }
    if is_given("image") && is_given("root") {
        return Err(
            Refusal::new("arguments", "--image and --root both say what / is inside").hint("leave one of them out")
        );
    }
    let profile_file = profile.as_ref().map(|profile| profile.origin.clone());
    let mut base = match (profile, from_file) {
        (Some(profile), _) => profile.policy,
        (None, Some(path)) => policy_file(path)?,
        (None, None) if eval => {
            let shows = is_given("volume")
                || is_given("root")
                || text("image").is_some_and(|image| image.starts_with(['/', '.']));
            eval_base(shows, &caller.homes)
        }
        (None, None) => run_defaults(caller, text("workdir").is_some()),
    };
    let from_file = profile_file.as_deref().or(from_file);
    let other_tree =
        text("root").is_some_and(|root| !matches!(root, "host" | "minimal" | "interpreter")) || is_given("image");
    let contained = text("backend").and_then(Backend::from_name).is_some_and(Backend::is_container);
    let elsewhere = text("workdir").is_some_and(|dir| !is_within(&caller.absolute_inside(dir), &caller.cwd));
    if from_file.is_none() && (other_tree && text("workdir").is_some() || contained && elsewhere) {
        // A tree of somebody's own rarely has a place for the caller's working directory, and a container cannot show every
        // one; nobody starts there.
        base.filesystem.mounts.clear();
    }
    let network_named = is_given("network");
    if let Some(chosen) = chosen {
        let variable = |name: &str| caller.variable(name).map(str::to_owned);
        environments::apply(&mut base, &chosen.recipe, chosen.project.as_ref(), &caller.homes, variable);
    }
    let base_mounts = base.filesystem.mounts.len();
    let mut draft = Draft { policy: base, caller, base_mounts, network_named, direct: false };
    let named = apply_options(&mut draft, matches)?;
    let direct = draft.direct;
    let volumes: Vec<String> = draft.policy.filesystem.mounts[draft.base_mounts..]
        .iter()
        .filter_map(|mount| match mount {
            Mount::Bind { source, .. } => Some(source.clone()),
            Mount::Tmpfs { .. } => None,
        })
        .collect();
    let mut policy = draft.policy;
    if network_named && policy.network.mode != NetworkMode::Allowlist {
        // The mode replaces the policy file's, and its lists go with it; what the command line says itself is a mistake.
        let was = std::mem::replace(&mut policy.network, Network::none());
        policy.network = Network {
            mode: was.mode,
            allow: if is_given("allow") { was.allow } else { Vec::new() },
            deny: if is_given("deny-host") { was.deny } else { Vec::new() },
            methods: was.methods.filter(|_| is_given("methods")),
            api: was.api.filter(|_| is_given("api")),
            upstream_proxy: was.upstream_proxy.filter(|_| is_given("upstream-proxy")),
            limits: if is_given("network-limit") { was.limits } else { NetworkLimits::default() },
        };
    }
    // What a policy file says of the network is complete.
    if text("policy").is_none() && !direct {
        policy.go_by_hosts_proxy(|name| caller.variable(name).map(str::to_owned));
    }
    if flag("tty") {
        policy.command.stdin = Stdin::Caller;
        let given = named.iter().any(|o| o.long == "env");
        if let Some(term) = caller.variable("TERM").filter(|_| !given) {
            policy.command.variables.insert("TERM".into(), term.into());
        }
    }
    if eval {
        let code = code_of(matches, code, caller, policy.command.stdin == Stdin::Caller)?;
        let arguments: Vec<String> = matches.get_many("args").into_iter().flatten().cloned().collect();
        match chosen.map(|chosen| (&chosen.recipe, &chosen.recipe.code_input)) {
            // An image of the call's takes the place of what the definition names, and another root its image's.
            Some((_, CodeInput::Image(name))) if !is_given("root") => {
                environment::enter_image(&mut policy, name, code, &arguments)?;
            }
            Some((_, CodeInput::Preset(name))) if is_given("image") => {
                environment::enter_image(&mut policy, name, code, &arguments)?;
            }
            Some((_, CodeInput::Preset(name) | CodeInput::Image(name))) => {
                environment::enter(&mut policy, caller, tree, name, code, &arguments)?;
            }
            Some((recipe, _)) => {
                let passed = recipe.pass(&mut policy, text_of(code)?, &arguments);
                passed.map_err(|told| Refusal::new("arguments", told).split_hint())?;
            }
            None if is_given("image") => {
                let name = text("environment").unwrap_or_default();
                environment::enter_image(&mut policy, name, code, &arguments)?;
            }
            None => {
                let name = text("environment").unwrap_or_default();
                environment::enter(&mut policy, caller, tree, name, code, &arguments)?;
            }
        }
    } else if let Some(words) = matches.get_many::<String>("program") {
        policy.command.argv = words.cloned().collect();
    } else if policy.command.argv.is_empty() {
        return Err(Refusal::new("arguments", "no program to run").hint("cofferdam run [OPTIONS] -- PROGRAM [ARGS]..."));
    }
    // A policy file or a profile says itself what is denied.
    if from_file.is_none() {
        if !policy.filesystem.deny.is_empty() {
            deny_moved(&mut policy, &caller.homes, |name| caller.variable(name));
        }
        if policy.filesystem.root == Root::Host {
            deny_dot_names(&mut policy, caller.around(), &volumes);
        }
    }
    policy.validate().and_then(|()| enough_files(&policy)).map_err(|errors| refused(&errors, &named, from_file))?;
    let perhaps_file = code.filter(|c| *c != "-" && c.len() < 256 && !c.contains(['\n', '(', '\0']));
    Ok(Call {
        policy,
        tty: flag("tty"),
        keep_changes: text("keep-changes").map(|dir| caller.absolute(dir)),
        audit_trail: crate::audit::named(matches.get_one::<String>("audit-trail"), caller),
        audit_secrets: matches.get_many("audit-secret").into_iter().flatten().cloned().collect(),
        perhaps_file: perhaps_file.map(str::to_owned),
    })
}

/// Open files that making a sandbox takes before the program starts under its own limit: descriptors of its stages, the
/// filter's listener, and one of each copy-on-write layer.
const FILES_FOR_SETUP: u64 = 16;

/// Refuses a limit that setup itself would run into, where the sandbox is of our own making.
fn enough_files(policy: &Policy) -> Result<(), PolicyErrors> {
    let copied = |mount: &&Mount| matches!(mount, Mount::Bind { access: Access::CopyOnWrite, .. });
    let least = FILES_FOR_SETUP + policy.filesystem.mounts.iter().filter(copied).count() as u64;
    let given = policy.limits.open_files;
    if given >= least || !matches!(policy.backend, Backend::Auto | Backend::Jail | Backend::Landlock) {
        return Ok(());
    }
    Err(PolicyErrors(vec![PolicyError {
        path: "$.limits.open_files".into(),
        value: given.to_string(),
        problem: "too few to set the sandbox up".into(),
        accepted: format!("at least {least} with these volumes"),
    }]))
}

/// What `run` allows when nobody says otherwise: the host's tree without credentials, and the working directory.
pub fn run_defaults(caller: &Caller, elsewhere: bool) -> Policy {
    let mut policy = Policy::base();
    policy.filesystem.root = Root::Host;
    policy.filesystem.deny = credentials(&caller.homes);
    let denied = policy.filesystem.deny.iter().any(|path| is_within(&caller.cwd, path));
    if !(elsewhere && denied) {
        policy.command.cwd = Some(caller.cwd.clone());
        // Bound onto itself, because it may lie below /tmp or a home that the host view hides. `/` needs no help,
        // and the sandbox has a /dev, /proc and /sys of its own.
        let own = caller.cwd == "/" || ["/dev", "/proc", "/sys"].iter().any(|own| is_within(&caller.cwd, own));
        if !own {
            policy.filesystem.mounts.push(Mount::Bind {
                source: caller.cwd.clone(),
                target: caller.cwd.clone(),
                access: Access::ReadOnly,
                exec: true,
                optional: false,
            });
        }
    }
    policy
}

/// Applies the options of the command line in their order, the late ones at the end. Returns which were given.
fn apply_options(draft: &mut Draft<'_>, matches: &ArgMatches) -> Result<Vec<&'static PolicyOption>, Refusal> {
    let mut given: Vec<(usize, &'static PolicyOption, &str)> = Vec::new();
    for option in POLICY_OPTIONS {
        if matches.value_source(option.long) != Some(ValueSource::CommandLine) {
            continue;
        }
        let mut indices = matches.indices_of(option.long).into_iter().flatten();
        if option.takes == Takes::Nothing {
            given.push((indices.next_back().unwrap_or(0), option, ""));
        } else {
            let values = matches.get_many::<String>(option.long).into_iter().flatten();
            given.extend(indices.zip(values).map(|(index, value)| (index, option, value.as_str())));
        }
    }
    given.sort_by_key(|(index, option, _)| (option.late, *index));
    for (_, option, value) in &given {
        (option.apply)(draft, value)
            .map_err(|message| Refusal::new("arguments", format!("--{}: {message}", option.long)).split_hint())?;
        // What somebody names must hold. `--best-effort` comes after, and takes it back where that is asked for.
        option.requires.iter().for_each(|field| draft.policy.require(*field));
    }
    Ok(given.into_iter().map(|(_, option, _)| option).collect())
}

fn code_of(matches: &ArgMatches, code: Option<&str>, caller: &Caller, stdin_open: bool) -> Result<Code, Refusal> {
    if let Some(file) = matches.get_one::<String>("file") {
        let name = matches.get_one::<String>("environment").map_or("python", String::as_str);
        return code_file(file, name, caller);
    }
    match code {
        Some("-") => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().take(MAX_CODE_BYTES + 1).read_to_end(&mut bytes);
            read.map_err(|e| Refusal::new("arguments", format!("cannot read the code from standard input: {e}")))?;
            if bytes.len() as u64 > MAX_CODE_BYTES {
                return Err(Refusal::new("arguments", "the code on standard input is longer than 64 MiB")
                    .hint("put it into a file and use --file FILE"));
            }
            String::from_utf8(bytes).map(Code::Text).map_err(|e| {
                let at = e.utf8_error().valid_up_to();
                Refusal::new("arguments", format!("the code on standard input is not valid UTF-8 at byte {at}"))
                    .hint("put it into a file and use --file FILE")
            })
        }
        Some(code) => Ok(Code::Text(code.to_owned())),
        None if stdin_open => Ok(Code::Interactive),
        None => Err(Refusal::new("arguments", "no code to run")
            .hint("give it as an argument, as - for standard input, as --file FILE, or start a session with -it")),
    }
}

/// A code file, which is shown inside whatever else is. Where it lies may be a link's word, and the link a repository's: so
/// it is no credential, and a link leads to no dot name of a home. What somebody names below one is what was asked for.
fn code_file(file: &str, environment: &str, caller: &Caller) -> Result<Code, Refusal> {
    let path = caller.absolute(file);
    std::fs::metadata(file).map_err(|e| {
        Refusal::new("arguments", format!("cannot read the code file {file}: {e}")).hint(match file {
            "-" => "code on standard input: cofferdam eval ENVIRONMENT -",
            _ => "--file takes the path of a file on this host; code itself is written without --file",
        })
    })?;
    // A pipe of the shell's (`/dev/fd/63`) has no path but this one.
    let real = |path: &str| std::fs::canonicalize(path).ok().and_then(|real| real.to_str().map(str::to_owned));
    let source = real(file).unwrap_or_else(|| path.clone());
    let mut hidden = Policy::base();
    hidden.command.cwd = Some(caller.cwd.clone());
    hidden.filesystem.deny = credentials(&caller.homes);
    deny_moved(&mut hidden, &caller.homes, |name| caller.variable(name));
    let within =
        |path: &str, place: &String| is_within(path, place) || real(place).is_some_and(|place| is_within(path, &place));
    let is_hidden = |path: &str, hidden: &Policy| hidden.filesystem.deny.iter().any(|place| within(path, place));
    let credential = is_hidden(&source, &hidden);
    if source != path {
        deny_dot_names(&mut hidden, caller.around(), &[]);
    }
    if credential || (is_hidden(&source, &hidden) && !is_hidden(&path, &hidden)) {
        let what = if credential { "a place of credentials" } else { "a hidden place of a home" };
        let leads = if source == path { format!("is {what}") } else { format!("leads to {source}, {what}") };
        return Err(Refusal::new("arguments", format!("the code file {file} {leads}")).hint(format!(
            "if it is code: cofferdam eval {} - < {}",
            quoted(environment),
            quoted(&source)
        )));
    }
    Ok(Code::File { path, source })
}

/// Code as text: what a program of somebody's own takes. Nothing for a session.
fn text_of(code: Code) -> Result<Option<String>, Refusal> {
    let path = match code {
        Code::Text(text) => return Ok(Some(text)),
        Code::Interactive => return Ok(None),
        Code::File { source, .. } => source,
    };
    let unreadable = |why: String| Refusal::new("arguments", format!("cannot read the code file {path}: {why}"));
    let metadata = std::fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > MAX_CODE_BYTES {
        return Err(unreadable("it is no regular file, or longer than 64 MiB".into()));
    }
    std::fs::read_to_string(&path).map(Some).map_err(|error| unreadable(error.to_string()))
}

/// Reads a policy without believing the file's size: at most one byte more than is accepted comes into memory.
pub fn read_policy_text(path: &str) -> std::io::Result<Result<Vec<u8>, PolicyErrors>> {
    let limit = MAX_POLICY_BYTES as u64;
    let mut text = Vec::new();
    let read = if path == "-" {
        std::io::stdin().lock().take(limit + 1).read_to_end(&mut text)?
    } else {
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.len() > limit {
            return Ok(Err(PolicyErrors::too_large(metadata.len())));
        }
        file.take(limit + 1).read_to_end(&mut text)?
    };
    Ok(if read as u64 > limit { Err(PolicyErrors::too_large(read as u64)) } else { Ok(text) })
}

fn policy_file(path: &str) -> Result<Policy, Refusal> {
    if path.ends_with(".ncl") {
        return Err(Refusal::new("policy", format!("{path} is a profile by its name, and a policy is JSON"))
            .hint(format!("--profile {path}")));
    }
    let text = read_policy_text(path)
        .map_err(|e| Refusal::new("policy", format!("cannot read the policy {path}: {e}")))?
        .map_err(|errors| refused(&errors, &[], Some(path)))?;
    Policy::decode(&text).map_err(|errors| {
        let errors = of_another_kind(&text, path).unwrap_or(errors);
        refused(&errors, &[], Some(path))
    })
}

/// The one error of a text that is meant as something else than a policy: what `--dry-run` prints, which has the policy in
/// it, or a configuration of nsjail's.
pub(crate) fn of_another_kind(text: &[u8], path: &str) -> Option<PolicyErrors> {
    let one = |problem: &str, accepted: String| {
        Some(PolicyErrors(vec![PolicyError {
            path: "$".into(),
            value: String::new(),
            problem: problem.into(),
            accepted,
        }]))
    };
    match compat::config::foreign(text) {
        Some(Form::Legacy) => return one("an older nsjail.json, which is no policy", stored_run(path)),
        Some(Form::Nsjail) => return one("a configuration of nsjail's own, which is no policy", stored_run(path)),
        _ => {}
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    if !(object.contains_key("policy") && object.contains_key("plan")) {
        return None;
    }
    one("the output of --dry-run, which is more than a policy", "its `.policy`, as by jq .policy".into())
}

/// How a configuration of nsjail's is run: as that of a stored profile, by the store that it lies in already or another.
fn stored_run(path: &str) -> String {
    let path = Path::new(path);
    let name = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
    let store = path.parent().and_then(Path::parent).filter(|store| *store != Path::new(""));
    let (id, store) = (name(path.parent()).filter(|id| Id::new(id).is_ok()), store.and_then(Path::to_str));
    match (path.ends_with("nsjail.json"), id, store) {
        (true, Some(id), Some(store)) => {
            format!("it as that of a profile: cofferdam run --profiles {} --profile {id}", quoted(store))
        }
        _ => "it as DIR/ID/nsjail.json: cofferdam run --profiles DIR --profile ID".to_owned(),
    }
}

/// Every error of a policy on a line of its own, with the option that would change it.
pub(crate) fn refused(errors: &PolicyErrors, named: &[&PolicyOption], file: Option<&str>) -> Refusal {
    let mut message = match (errors.0.len(), file) {
        (1, None) => "the policy is refused:".to_owned(),
        (n, None) => format!("the policy is refused, {n} errors:"),
        (1, Some(file)) => format!("the policy {file} is refused:"),
        (n, Some(file)) => format!("the policy {file} is refused, {n} errors:"),
    };
    for error in &errors.0 {
        let option = option_of_path(&error.path);
        let by = named.iter().find(|n| option.is_some_and(|o| o.leaves == n.leaves));
        let by = by.map(|o| format!("--{}: ", o.long)).unwrap_or_default();
        message.push_str(&format!("\n  {by}{error}"));
    }
    let mut refusal = Refusal::new("policy", message);
    if errors.0.iter().any(|e| e.problem.contains("working directory that is denied")) {
        refusal = refusal.hint("change to another directory, or name one inside with --workdir DIR");
    } else if let Some(file) = file {
        refusal = refusal.hint(format!("cofferdam check {file}"));
    }
    refusal
}

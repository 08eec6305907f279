//! Evaluates jobs in one Nickel context per process, which loads the standard library once.
//!
//! ```text
//! sources in memory ─ no more files can be opened ─ wrapper over profile and overrides ─ evaluate ─ outputs
//! ```
//!
//! Uses the policy library only through `(import "sandbox").outputs PROFILE`. Writes nothing.

use std::io::sink;
use std::path::{Path, PathBuf};

use cofferdam_policy::Policy;
use cofferdam_profiles::overrides::quoted;
use cofferdam_profiles::protocol::{
    Encoding, Evaluated, EvaluationJob, EvaluationProblem, EvaluatorDirectory, OutputFormat, Override, ProblemKind,
    RequestedOutput,
};
use nickel_lang_core::ast::InputFormat;
use nickel_lang_core::cache::{AstEntryState, CacheHub, SourcePath};
use nickel_lang_core::error::report::{ColorOpt, report_as_str};
use nickel_lang_core::error::{Diagnostic, Error, IntoDiagnostics as _, NullReporter};
use nickel_lang_core::eval::cache::CacheImpl;
use nickel_lang_core::eval::value::NickelValue;
use nickel_lang_core::eval::{VirtualMachine, VmContext};
use nickel_lang_core::files::{FileId, Files};
use nickel_lang_core::parser::lexer::KEYWORDS;
use nickel_lang_core::position::RawSpan;
use nickel_lang_core::serialize::{ExportFormat, to_string, validate};
use serde_json::Value;

use crate::field_locations;
use crate::imports_and_depth;
use crate::library::{LIBRARY, ROOT, closure};
use crate::sources::{Hint as _, Sources, problem, too_deeply};

/// Evaluates jobs, one after the other.
pub struct Evaluator {
    context: VmContext<CacheHub, CacheImpl>,
    sources: Sources,
    dirs: Vec<EvaluatorDirectory>,
    /// The files of the present job.
    own: Vec<PathBuf>,
    /// The overrides of the present job: the path, and the source of the value.
    set: Vec<(String, FileId)>,
    jobs: usize,
}

impl Evaluator {
    /// A context with these directories and the library.
    pub fn new(dirs: Vec<EvaluatorDirectory>) -> Evaluator {
        let mut cache = CacheHub::new();
        let sources = Sources::new(&mut cache.sources);
        // Output of `std.trace` is discarded, since standard output belongs to the protocol.
        let context = VmContext::new(cache, sink(), NullReporter {});
        Evaluator { context, sources, dirs, own: Vec::new(), set: Vec::new(), jobs: 0 }
    }

    /// Does one job. `closed` is called when all files have been read, and returns whether no other can be opened from then on.
    ///
    /// # Errors
    /// The profile cannot be read, or is refused by Nickel, the policy or the target.
    pub fn evaluate(
        &mut self,
        job: &EvaluationJob,
        closed: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<Evaluated, EvaluationProblem> {
        self.jobs += 1;
        self.set.clear();
        let cache = &mut self.context.import_resolver.sources;
        let loaded = self.sources.load(cache, &job.file, &job.imports, &self.dirs)?;
        closed().map_err(|error| {
            problem(ProblemKind::Unreadable, format!("cannot keep the evaluation from opening files: {error}"))
        })?;
        self.own = loaded.files.iter().map(|file| file.path.clone()).collect();
        let wrapped: Vec<RequestedOutput> =
            job.outputs.iter().copied().filter(|wanted| wanted.format != OutputFormat::Raw).collect();
        let main = (!wrapped.is_empty()).then_some("main.ncl");
        for file in loaded.library.iter().map(String::as_str).chain(main) {
            self.believe(file)?;
        }
        let profile = self.profile(job)?;
        let mut evaluated = Evaluated { files: loaded.files, absent: loaded.absent, ..Evaluated::default() };
        let raw = if wrapped.len() < job.outputs.len() {
            // As the `nickel` command would, without the wrapper.
            let bare = format!("{profile}\n");
            let value = if job.overrides.is_empty() { self.file(job)? } else { self.source("raw", bare) };
            Some(self.run(value, &job.file)?)
        } else {
            None
        };
        let outputs = if wrapped.is_empty() {
            Value::Null
        } else {
            let source = wrapper(&profile, &wrapped);
            let source = self.source("outputs", source);
            let value = self.run(source, &job.file)?;
            let text = self.text(&value, ExportFormat::Json, &job.file)?;
            serde_json::from_str(&text)
                .map_err(|error| problem(ProblemKind::Nickel, format!("the outputs are not JSON: {error}")))?
        };
        let policy = if wrapped.is_empty() { None } else { Some(policy(&outputs["policy"], &job.file)?) };
        for wanted in &job.outputs {
            let text = match (&policy, &raw) {
                (_, Some(value)) if wanted.format == OutputFormat::Raw => {
                    Ok(self.text(value, encoding(wanted.encoding), &job.file)?)
                }
                (Some(policy), _) => match refused(&outputs, wanted.format, &job.file) {
                    Some(why) => Err(why),
                    None => Ok(self.output(policy, &outputs, *wanted, &job.file)?),
                },
                (None, _) => Err(format!("{}: no {} was made", job.file.display(), wanted.format.name())),
            };
            evaluated.outputs.push(text);
        }
        evaluated.warnings = warnings(&outputs["warnings"], &job.outputs);
        Ok(evaluated)
    }

    /// Marks a file of the library, and its imports, as typechecked: the library's own tests check them, and doing it again takes a
    /// third of the time of an evaluation. Profiles are checked.
    fn believe(&mut self, file: &str) -> Result<(), EvaluationProblem> {
        let hub = &mut self.context.import_resolver;
        for file in closure(file) {
            let path = Path::new(ROOT).join("sandbox").join(file);
            let Some(id) = hub.sources.id_of(&SourcePath::Path(path, InputFormat::Nickel)) else { continue };
            if let Err(errors) = hub.parse_to_ast(id) {
                return Err(self.problem(Error::ParseErrors(errors), Path::new("the policy library")));
            }
            if hub.asts.entry_state(id) == Some(AstEntryState::Parsed) {
                // It has just been parsed, so it exists.
                hub.asts.update_state(id, AstEntryState::Typechecked).ok();
            }
        }
        Ok(())
    }

    /// The profile with its overrides, as an expression.
    fn profile(&mut self, job: &EvaluationJob) -> Result<String, EvaluationProblem> {
        let file = quoted(&job.file.display().to_string());
        let mut values: Vec<SetValue> = Vec::new();
        for (at, set) in job.overrides.iter().enumerate() {
            let shown = shown(set);
            let scan = imports_and_depth::nickel(&set.value);
            if !scan.imports.is_empty() {
                return Err(problem(ProblemKind::Override, format!("{shown}: a value that is set imports nothing"))
                    .hint("import it in the profile"));
            }
            if let Some(place) = scan.too_deep {
                return Err(too_deeply(&shown, &set.value, place));
            }
            // A source of its own: it cannot refer to fields of the profile, and errors show its position. Slashes in names are
            // replaced, so that they do not lead to another path.
            let name =
                Path::new(ROOT).join(self.jobs.to_string()).join(format!("{at} {shown}").replace('/', "\u{2215}"));
            let key = SourcePath::Path(name.clone(), InputFormat::Nickel);
            let source = self.context.import_resolver.sources.add_string(key, set.value.clone());
            self.set.push((set.path.join("."), source));
            let import = format!("import {} as 'Nickel", quoted(&name.display().to_string()));
            set_value(&mut values, &set.path, import);
        }
        Ok(merged(format!("(import {file} as 'Nickel)"), &values))
    }

    /// A source of the evaluator's own, below the library's root so that it finds the library.
    fn source(&mut self, name: &str, text: String) -> FileId {
        let path = Path::new(ROOT).join(format!("{}.{name}.ncl", self.jobs));
        self.context.import_resolver.sources.add_string(SourcePath::Path(path, InputFormat::Nickel), text)
    }

    /// The profile itself.
    fn file(&mut self, job: &EvaluationJob) -> Result<FileId, EvaluationProblem> {
        let path: PathBuf = nickel_lang_core::cache::normalize_abs_path(&job.file);
        let key = SourcePath::Path(path, InputFormat::Nickel);
        self.context
            .import_resolver
            .sources
            .id_of(&key)
            .ok_or_else(|| problem(ProblemKind::Unreadable, format!("{} is not loaded", job.file.display())))
    }

    /// Evaluates a source in full.
    fn run(&mut self, id: FileId, file: &Path) -> Result<NickelValue, EvaluationProblem> {
        let evaluated = self.context.prepare_eval(id).and_then(|value| {
            VirtualMachine::new(&mut self.context).eval_full_for_export_closure(value.into()).map_err(Error::EvalError)
        });
        evaluated.map_err(|error| self.problem(error, file))
    }

    /// A value in an encoding, as the `nickel` command writes it.
    fn text(&mut self, value: &NickelValue, format: ExportFormat, file: &Path) -> Result<String, EvaluationProblem> {
        let written = validate(format, value).and_then(|()| to_string(format, value));
        let mut text = written
            .map_err(|error| Error::ExportError(error.with_pos_table(self.context.pos_table.clone()).into()))
            .map_err(|error| self.problem(error, file))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// One output of those that the library returned.
    fn output(
        &mut self,
        policy: &Policy,
        outputs: &Value,
        wanted: RequestedOutput,
        file: &Path,
    ) -> Result<String, EvaluationProblem> {
        let value = &outputs[field(wanted.format)];
        match wanted.format {
            OutputFormat::Policy if wanted.encoding == Encoding::Json => Ok(line(policy.to_json_pretty())),
            OutputFormat::Policy => {
                let complete = serde_json::to_value(policy).map_err(|error| {
                    problem(ProblemKind::Policy, format!("{}: cannot write the policy: {error}", file.display()))
                })?;
                self.encoded(&complete, wanted.encoding, file)
            }
            OutputFormat::Seatbelt => {
                Ok(command_line(&value["parameters"]) + &text_of(&value["profile"], wanted.format, file)?)
            }
            OutputFormat::NsjailText => text_of(value, wanted.format, file),
            OutputFormat::Nsjail | OutputFormat::Raw => self.encoded(value, wanted.encoding, file),
        }
    }

    fn encoded(&mut self, value: &Value, as_what: Encoding, file: &Path) -> Result<String, EvaluationProblem> {
        let value = serde_json::from_value(value.clone()).map_err(|error| {
            problem(ProblemKind::Target, format!("{}: cannot write the output: {error}", file.display()))
        })?;
        self.text(&value, encoding(as_what), file)
    }

    /// Nickel's error as a problem, with the source lines.
    fn problem(&mut self, error: Error, file: &Path) -> EvaluationProblem {
        let hub = &self.context.import_resolver;
        let mut files = hub.sources.files.clone();
        let own = self.own.iter().filter_map(|path| {
            let id = hub.sources.id_of(&SourcePath::Path(path.clone(), InputFormat::Nickel))?;
            hub.asts.get(id).map(field_locations::fields)
        });
        let mut fields: Vec<_> = own.flatten().collect();
        for (path, source) in &self.set {
            let whole = RawSpan::from_range(*source, 0..files.source(*source).len());
            field_locations::replace(&mut fields, path, hub.asts.get(*source), whole);
        }
        let errors = error.into_diagnostics(&mut files).into_iter();
        let errors: Vec<_> = errors.map(|error| field_locations::shown(error, &fields, &files)).collect();
        let keyword = errors.iter().find_map(|error| keyword_as_name(error, &files));
        let text: String =
            errors.into_iter().map(|error| report_as_str(&mut files.clone(), error, ColorOpt::Never)).collect();
        let problem =
            problem(ProblemKind::Nickel, format!("{} is refused:\n{}", file.display(), clipped(text.trim_end())));
        if let Some(word) = keyword {
            return problem.hint(&format!(
                "`{word}` is a keyword of Nickel and cannot name a variable: rename it, as in `{word}_`"
            ));
        }
        match library_import(&text) {
            Some(import) => problem.hint(&format!("the library is inside the program: import \"{import}\"")),
            None => problem,
        }
    }
}

/// A value that is set, and values set inside it later.
struct SetValue {
    path: Vec<String>,
    import: String,
    inner: Vec<SetValue>,
}

/// Sets a value, which replaces an earlier value of its path or below it.
fn set_value(values: &mut Vec<SetValue>, path: &[String], import: String) {
    values.retain(|earlier| !earlier.path.starts_with(path));
    match values.iter_mut().find(|earlier| path.starts_with(&earlier.path)) {
        Some(outer) => set_value(&mut outer.inner, &path[outer.path.len()..], import),
        None => values.push(SetValue { path: path.to_vec(), import, inner: Vec::new() }),
    }
}

/// An expression for the values that are set.
fn merged(mut expression: String, values: &[SetValue]) -> String {
    for value in values {
        let path: Vec<String> = value.path.iter().map(|name| quoted(name)).collect();
        let inner = merged(format!("({})", value.import), &value.inner);
        expression += &format!(" & {{ {} | force = {inner} }}", path.join("."));
    }
    expression
}

/// The library's name of a file that was imported by a path to a copy of the library.
fn library_import(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("import of ")?;
    let (path, _) = rest.split_once(" failed: could not find import")?;
    let names = path.match_indices("sandbox/").map(|(at, _)| &path[at + "sandbox/".len()..]);
    let file = names.into_iter().find(|name| LIBRARY.iter().any(|(file, ..)| file == name))?;
    Some(if file == "main.ncl" { "sandbox".to_owned() } else { format!("sandbox/{file}") })
}

/// The keyword that is used as the name of a variable or argument, such as `default` in `let default = 1`.
fn keyword_as_name(error: &Diagnostic<FileId>, files: &Files) -> Option<&'static str> {
    let at = error.labels.first().filter(|_| error.message == "unexpected token")?;
    let source = files.source(at.file_id);
    let before = source.get(..at.range.start)?.split_whitespace().next_back()?;
    let found = source.get(at.range.clone()).filter(|_| ["let", "rec", "fun"].contains(&before))?;
    KEYWORDS.iter().copied().find(|keyword| *keyword == found)
}

/// A message with its long lines shortened, which a generated source may have.
fn clipped(text: &str) -> String {
    const LINES: usize = 120;
    const CHARS: usize = 500;
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        if number == LINES {
            out.push('…');
            break;
        }
        match line.char_indices().nth(CHARS) {
            Some((end, _)) => out.extend([&line[..end], "…\n"]),
            None => out.extend([line, "\n"]),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The library's outputs, restricted to the requested ones, so that no other is computed.
fn wrapper(profile: &str, wanted: &[RequestedOutput]) -> String {
    let mut fields: Vec<&str> = wanted.iter().map(|wanted| field(wanted.format)).collect();
    fields.push(field(OutputFormat::Policy)); // needed for every output
    fields.sort_unstable();
    fields.dedup();
    let mut fields: String = fields.iter().map(|field| format!("{field} = outputs.{field}, ")).collect();
    if wanted.iter().any(|wanted| target(wanted.format).is_some()) {
        fields += "warnings = outputs.warnings, refusals = outputs.refusals";
    } else {
        // Notes that are not about a target; the others would take as long as the policy itself.
        fields += "warnings = if std.record.has_field \"version\" outputs.raw then [] \
                   else (import \"sandbox/lib/policy_json.ncl\").notes outputs.raw";
    }
    format!("let outputs = (import \"sandbox\").outputs ({profile}) in\n{{ {fields} }}\n")
}

/// The field of the library's outputs for a format.
fn field(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::Policy => "policy",
        OutputFormat::Nsjail => "nsjail",
        OutputFormat::NsjailText => "nsjail_text",
        OutputFormat::Seatbelt => "seatbelt",
        OutputFormat::Raw => "raw",
    }
}

/// The target of a format in the library's notes; `None` for the policy.
fn target(format: OutputFormat) -> Option<&'static str> {
    match format {
        OutputFormat::Nsjail | OutputFormat::NsjailText => Some("nsjail"),
        OutputFormat::Seatbelt => Some("seatbelt"),
        OutputFormat::Policy | OutputFormat::Raw => None,
    }
}

/// The policy that every output is made of, validated like every policy. The library checks what its targets need; names that are
/// copied into their texts, such as those of system calls, are checked by the policy. A profile may leave its program to the caller.
fn policy(value: &Value, file: &Path) -> Result<Policy, EvaluationProblem> {
    let policy = Policy::decode(value.to_string().as_bytes()).map_err(|errors| not_a_policy(&errors.0, file))?;
    let checked = if policy.command.argv.is_empty() {
        let mut complete = policy.clone();
        complete.command.argv.push("true".into());
        complete.validate()
    } else {
        policy.validate()
    };
    checked.map_err(|errors| not_a_policy(&errors.0, file))?;
    Ok(policy)
}

/// Why the target cannot have this output.
fn refused(outputs: &Value, format: OutputFormat, file: &Path) -> Option<String> {
    let of = target(format)?;
    let notes = outputs["refusals"].as_array().into_iter().flatten().filter(|note| note["target"] == of);
    let reasons: Vec<String> = notes.map(note_text).collect();
    (!reasons.is_empty()).then(|| format!("{} cannot be exported for {of}: {}", file.display(), reasons.join("; ")))
}

/// What the requested targets cannot express.
fn warnings(notes: &Value, wanted: &[RequestedOutput]) -> Vec<String> {
    let foreign = |name: &str| {
        OutputFormat::ALL.iter().any(|format| target(*format) == Some(name))
            && wanted.iter().all(|wanted| target(wanted.format) != Some(name))
    };
    let notes = notes.as_array().into_iter().flatten();
    let relevant = notes.filter(|note| !foreign(note["target"].as_str().unwrap_or_default()));
    relevant
        .map(|note| match note["target"].as_str() {
            Some(target) => format!("{target}: {}", note_text(note)),
            None => note_text(note),
        })
        .collect()
}

fn note_text(note: &Value) -> String {
    let message = note["message"].as_str().unwrap_or_default();
    match note["field"].as_str() {
        Some(field) if !field.is_empty() => format!("{field}: {message}"),
        _ => message.to_owned(),
    }
}

/// The usage of a Seatbelt profile, as its first lines: it takes paths as parameters, which the user has to know.
fn command_line(parameters: &Value) -> String {
    let mut text = String::from(";; sandbox-exec -f THIS_FILE");
    for (name, value) in parameters.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+:@%,".contains(&b));
        // Quoted for a shell, and on one line: copying it runs nothing that a name contains, and no value ends the comment.
        let value = if plain {
            value.to_owned()
        } else {
            format!("'{}'", value.replace('\'', r"'\''").replace(char::is_control, "?"))
        };
        text += &format!(" \\\n;;   -D {name}={value}");
    }
    text + " \\\n;;   -- COMMAND\n"
}

fn text_of(value: &Value, format: OutputFormat, file: &Path) -> Result<String, EvaluationProblem> {
    value.as_str().map(|text| line(text.to_owned())).ok_or_else(|| {
        problem(ProblemKind::Target, format!("{}: the library gives no {}", file.display(), format.name()))
    })
}

fn line(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn encoding(encoding: Encoding) -> ExportFormat {
    match encoding {
        Encoding::Json => ExportFormat::Json,
        Encoding::Yaml => ExportFormat::Yaml,
        Encoding::Toml => ExportFormat::Toml,
    }
}

/// An override as written on the command line.
fn shown(set: &Override) -> String {
    format!("--set {}", set.path.join("."))
}

fn not_a_policy(errors: &[cofferdam_policy::PolicyError], file: &Path) -> EvaluationProblem {
    let lines: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
    problem(ProblemKind::Policy, format!("the policy of {} is refused:{}", file.display(), lines.concat()))
}

//! Locates the fields that an error is about in the profile, to show the user's own lines instead of the library's.
//!
//! Contracts of the library check whole records, so Nickel reports only where the record begins. Their messages name the fields, and
//! the parsed files have their positions. Evaluates nothing, and is used only after an error.

use nickel_lang_core::ast::record::FieldPathElem;
use nickel_lang_core::ast::{Ast, Node};
use nickel_lang_core::error::{Diagnostic, Label, UNKNOWN_SOURCE_NAME};
use nickel_lang_core::files::{FileId, Files};
use nickel_lang_core::position::{RawSpan, TermPos};

/// Most locations that one error shows.
const MAX_LOCATIONS: usize = 4;

/// A field that a source sets: its path from the outermost record, and the position of its name.
#[derive(Debug, Clone)]
pub(crate) struct FieldLocation {
    path: String,
    name: RawSpan,
    whole: RawSpan,
}

/// All fields that a source sets in a record literal.
pub(crate) fn fields(source: &Ast<'_>) -> Vec<FieldLocation> {
    let mut found = Vec::new();
    // Not recursive, since a chain of merges may be as long as the source.
    let mut open: Vec<(String, &Ast<'_>)> = vec![(String::new(), source)];
    while let Some((path, ast)) = open.pop() {
        let outside = |inner| (String::new(), inner);
        match &ast.node {
            Node::Record(record) => {
                for definition in record.field_defs {
                    let Some(path) = joined(&path, definition.path) else { continue };
                    let name = definition.path.last().map_or(TermPos::None, FieldPathElem::pos);
                    if let (Some(name), Some(whole)) = (name.into_opt(), definition.pos.into_opt()) {
                        found.push(FieldLocation { path: path.clone(), name, whole });
                    }
                    open.extend(definition.value.as_ref().map(|value| (path, value)));
                }
            }
            Node::Array(items) => {
                open.extend(items.iter().enumerate().map(|(at, item)| (format!("{path}[{at}]"), item)));
            }
            Node::PrimOpApp { args, .. } => open.extend(args.iter().map(|inner| (path.clone(), inner))),
            Node::Annotated { inner, .. } => open.push((path, inner)),
            Node::IfThenElse { then_branch, else_branch, .. } => {
                open.extend([(path.clone(), *then_branch), (path, *else_branch)]);
            }
            Node::Let { bindings, body, .. } => {
                open.extend(bindings.iter().map(|binding| outside(&binding.value)));
                open.push((path, body));
            }
            Node::Fun { body, .. } => open.push((path, body)),
            Node::App { head, args } => {
                open.push(outside(head));
                open.extend(args.iter().map(outside));
            }
            _ => {}
        }
    }
    found
}

/// Replaces the fields that files set at the path of an override, which is in force instead.
///
/// `source` is the source of the override's value, `whole` its whole span.
pub(crate) fn replace(fields: &mut Vec<FieldLocation>, path: &str, source: Option<&Ast<'_>>, whole: RawSpan) {
    let mut set = vec![FieldLocation { path: path.to_owned(), name: whole, whole }];
    for field in source.map(self::fields).unwrap_or_default() {
        let point = if field.path.starts_with('[') { "" } else { "." };
        set.push(FieldLocation { path: format!("{path}{point}{}", field.path), ..field });
    }
    fields.retain(|field| set.iter().all(|set| set.path != field.path));
    fields.extend(set);
}

fn joined(outer: &str, path: &[FieldPathElem<'_>]) -> Option<String> {
    let mut joined = outer.to_owned();
    for element in path {
        if !joined.is_empty() {
            joined.push('.');
        }
        joined.push_str(element.try_as_ident()?.label());
    }
    Some(joined)
}

/// Adds the locations of the fields that the message names, if Nickel shows none of them, and removes unreadable values.
pub(crate) fn shown(mut error: Diagnostic<FileId>, fields: &[FieldLocation], files: &Files) -> Diagnostic<FileId> {
    let found = named(&error.message, fields);
    let own = |file: FileId| fields.iter().any(|field| field.name.src_id == file);
    let within = |label: &Label<FileId>, span: &RawSpan| {
        label.file_id == span.src_id
            && span.start.to_usize() <= label.range.start
            && label.range.end <= span.end.to_usize()
    };
    let known = error.labels.iter().any(|label| found.iter().any(|field| within(label, &field.whole)));
    if !found.is_empty() && !known {
        error.labels.retain(|label| {
            let around = |field: &FieldLocation| {
                label.file_id == field.name.src_id
                    && label.range.start <= field.name.start.to_usize()
                    && field.name.end.to_usize() <= label.range.end
            };
            own(label.file_id) && !found.iter().any(|field| around(field))
        });
        let locations = found.iter().take(MAX_LOCATIONS).enumerate().map(|(at, field)| {
            let range = field.name.start.to_usize()..field.name.end.to_usize();
            // The position in the report's head is that of the primary label: the field that the message names first.
            let label = if at == 0 { Label::primary } else { Label::secondary };
            label(field.name.src_id, range).with_message("set here")
        });
        error.labels.splice(0..0, locations);
    }
    let unreadable = |label: &Label<FileId>| {
        files.name(label.file_id) == UNKNOWN_SOURCE_NAME && files.source(label.file_id).contains("%<closure@")
    };
    if !error.labels.iter().all(unreadable) {
        error.labels.retain(|label| !unreadable(label));
    }
    error
}

/// The fields that a contract's message names outside of quotes, by their full paths; for the first one, that of its record.
fn named<'f>(message: &str, fields: &'f [FieldLocation]) -> Vec<&'f FieldLocation> {
    let mut lines = message.lines();
    if !lines.next().is_some_and(|title| title.starts_with("contract broken")) {
        return Vec::new();
    }
    let mut found: Vec<&FieldLocation> = Vec::new();
    let of = |path: &str| fields.iter().filter(|field| field.path == path).collect::<Vec<_>>();
    let plain: String = lines.collect::<Vec<_>>().join(" ").split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words = plain.split(|c: char| c.is_whitespace() || ",;:`".contains(c)).filter(|word| !word.is_empty());
    for (at, word) in words.enumerate() {
        let mut fields = of(word);
        let mut rest = word;
        while at == 0 && fields.is_empty() {
            let Some((outer, _)) = rest.rsplit_once(['.', '[']) else { break };
            (rest, fields) = (outer, of(outer));
        }
        for field in fields {
            if found.iter().all(|known| known.name != field.name) {
                found.push(field);
            }
        }
    }
    found
}

//! `cofferdam audit verify`: the result of verifying a trail, as text and as JSON.
//!
//! Verification itself is `cofferdam_audit`'s. Writes nothing to the trail.

use std::path::Path;

use cofferdam_engine::audit::{self, Anchored, PublicKey, TrailFault, VerificationFailure, Verified, Wrong};
use cofferdam_policy::text;
use serde::Serialize;

use super::errors::{refused, unreadable, unreadable_anchor};
use super::unended::{MOST_UNENDED, description, to_json};
use crate::output::stderr::print_note;
use crate::output::stdout::{print, print_json};
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// The output of `verify --json`.
#[derive(Serialize)]
struct VerifyReport<'a> {
    ok: bool,
    trail: Option<&'a str>,
    records: Option<u64>,
    first: Option<u64>,
    last: Option<u64>,
    last_hash: Option<String>,
    files: Option<u64>,
    recovered: Option<usize>,
    checkpoints: Option<u64>,
    covered: Option<u64>,
    keys: Option<&'a [String]>,
    anchored: Option<u64>,
    unended: Option<Vec<serde_json::Value>>,
    file: Option<String>,
    line: Option<u64>,
    offset: Option<u64>,
    record: Option<u64>,
    problem: Option<String>,
    /// The anchored record that is missing, with all others.
    missing: Option<serde_json::Value>,
    warnings: &'a [String],
}

fn consistent<'a>(v: &'a Verified, warnings: &'a [String]) -> VerifyReport<'a> {
    VerifyReport {
        ok: true,
        trail: v.trail.as_deref(),
        records: Some(v.last.seq + 1 - v.first),
        first: Some(v.first),
        last: Some(v.last.seq),
        last_hash: Some(audit::hex(&v.last.hash)),
        files: Some(v.files),
        recovered: Some(v.recovered.len()),
        checkpoints: Some(v.checkpoints),
        covered: Some(v.covered),
        keys: Some(&v.keys),
        anchored: Some(v.anchored),
        unended: Some(v.unended.iter().map(to_json).collect()),
        file: None,
        line: None,
        offset: None,
        record: None,
        problem: None,
        missing: None,
        warnings,
    }
}

fn inconsistent<'a>(p: &TrailFault, warnings: &'a [String]) -> VerifyReport<'a> {
    let missing = match &p.wrong {
        Wrong::Gone { anchored, hash, trail } => {
            Some(serde_json::json!({ "record": anchored, "hash": audit::hex(hash), "trail": trail }))
        }
        _ => None,
    };
    VerifyReport {
        ok: false,
        trail: None,
        records: None,
        first: None,
        last: None,
        last_hash: None,
        files: None,
        recovered: None,
        checkpoints: None,
        covered: None,
        keys: None,
        anchored: None,
        unended: None,
        file: Some(p.file.display().to_string()),
        line: Some(p.line),
        offset: Some(p.offset),
        record: Some(p.seq),
        problem: Some(p.wrong.to_string()),
        missing,
        warnings,
    }
}

/// Verifies a trail and prints the result. The exit code is 1 where the trail is not consistent.
pub(super) fn verify(
    dir: &Path,
    key: Option<&str>,
    anchor: Option<String>,
    trail: Option<&str>,
    json: bool,
) -> Result<i32, CliRefusal> {
    let signer = key.map(PublicKey::parse).transpose().map_err(|e| refused(&e))?;
    let anchors = match &anchor {
        Some(file) => audit::anchored(Path::new(file)).map_err(|e| unreadable_anchor(file, &e))?,
        None => Anchored::new(),
    };
    let anchors = trail.into_iter().fold(anchors, |anchors, trail| anchors.of(trail));
    if let Some(file) = anchor.filter(|_| anchors.is_empty()) {
        return Err(CliRefusal::new("audit", format!("{file} holds no anchored checkpoint of this trail"))
            .hint("`cofferdam audit checkpoint --key FILE --anchor file:PATH` writes one"));
    }
    let (code, problem, verified) = match audit::verify(dir, signer, &anchors, &mut |_| {}) {
        Ok(v) => (0, None, Some(v)),
        Err(VerificationFailure::Io(e)) => return Err(unreadable(dir, &e)),
        Err(VerificationFailure::Wrong(p)) if p.wrong == Wrong::Empty => {
            return Err(CliRefusal::new("audit", format!("there is no record in {}", dir.display()))
                .hint("`cofferdam run --audit-trail DIR` writes a trail"));
        }
        Err(VerificationFailure::Wrong(p)) => (1, Some(p), None),
    };
    let warnings = warnings(dir);
    warnings.iter().for_each(|warning| print_note(warning, None));
    match (problem, verified) {
        (Some(p), _) if json => print_json(&inconsistent(&p, &warnings)),
        (Some(p), _) => {
            let place = if p.line > 0 {
                format!("{}:{} (byte {})", p.file.display(), p.line, p.offset)
            } else {
                p.file.display().to_string()
            };
            let place = text::one_line(&place);
            let hint = match p.wrong {
                Wrong::OtherTrail { .. } if trail.is_none() => "\nhint: --trail ID says which one it must be",
                Wrong::Gone { .. } => "\nhint: --dir DIR names the trail, if this is not its directory",
                _ => "",
            };
            print(&printable(&format!("{place}: record {}: {}{hint}\n", p.seq, p.wrong)))
        }
        (_, Some(v)) if json => print_json(&consistent(&v, &warnings)),
        (_, Some(v)) => print(&text_of(&v, anchors.is_empty())),
        (None, None) => Ok(()),
    }
    .map(|()| code)
}

/// Reasons for which a consistent trail may still be forged.
fn warnings(dir: &Path) -> Vec<String> {
    match audit::open_to_others(dir) {
        Ok(None) => Vec::new(),
        Ok(Some(path)) => {
            let path = path.display();
            vec![format!(
                "warning: others may write {path}, and could have written all of this trail anew; chmod go-w {path}"
            )]
        }
        // A missing trail is reported as that.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => vec![format!("warning: who may write {} cannot be found out: {e}", dir.display())],
    }
}

/// The result for a consistent trail, as text. `unanchored`: it was not compared with an anchor.
fn text_of(v: &Verified, unanchored: bool) -> String {
    let mut text = format!(
        "{} records, {} to {}, in {} files hold together\nlast: {} of {}\n",
        v.last.seq + 1 - v.first,
        v.first,
        v.last.seq,
        v.files,
        audit::hex(&v.last.hash),
        v.until
    );
    if let Some(trail) = &v.trail {
        text.push_str(&format!("trail: {trail}\n"));
    }
    if v.first > 1 {
        text.push_str(&format!("records 1 to {} are not here: older files were put away, or removed\n", v.first - 1));
    }
    for (file, offset) in &v.recovered {
        text.push_str(&format!(
            "a writer was stopped in the middle at {} (byte {offset}); sealed\n",
            text::one_line(&file.to_string_lossy())
        ));
    }
    if v.checkpoints > 0 {
        let keys = v.keys.join(", ");
        text.push_str(&format!("{} checkpoints, up to record {}, signed by {keys}\n", v.checkpoints, v.covered));
    }
    for run in v.unended.iter().take(MOST_UNENDED) {
        text.push_str(&format!("{}\n", description(run).replace('\n', "\\n")));
    }
    let more = v.unended.len().saturating_sub(MOST_UNENDED) as u64 + v.uncounted;
    if more > 0 {
        text.push_str(&format!("{more} more runs have no end; --json lists them\n"));
    }
    text.push_str(&match (unanchored, v.anchored) {
        (true, _) => "no anchor was compared: whether records are missing at the end is not known\n".to_owned(),
        (false, n) => format!("{n} anchored checkpoints are there\n"),
    });
    printable(&text)
}

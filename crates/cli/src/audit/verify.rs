//! `cofferdam audit verify`: what was found of a trail, for people and as JSON.
//!
//! What makes a trail right or wrong is the engine's to say. Writes nothing.

use std::path::Path;

use cofferdam_engine::audit::{self, Anchored, Failed, Life, Owner, Problem, PublicKey, Unended, Verified, Wrong};
use cofferdam_policy::text;
use serde::Serialize;

use super::{TOLD, refused, unanchored, unread};
use crate::execute::{print, print_json};
use crate::report::{Refusal, print_note, printable};

/// What `verify --json` prints.
#[derive(Serialize)]
struct Verdict<'a> {
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
    /// The anchored record that is gone with all others.
    missing: Option<serde_json::Value>,
    warnings: &'a [String],
}

fn good<'a>(v: &'a Verified, warnings: &'a [String]) -> Verdict<'a> {
    Verdict {
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
        unended: Some(v.unended.iter().map(unended).collect()),
        file: None,
        line: None,
        offset: None,
        record: None,
        problem: None,
        missing: None,
        warnings,
    }
}

/// A run without an end, as data.
fn unended(run: &Unended) -> serde_json::Value {
    serde_json::json!({
        "run": run.run, "skill": run.skill, "record": run.seq, "time": run.time,
        "owner": run.owner.as_ref().map(Owner::data), "state": life(run).name(),
    })
}

fn life(run: &Unended) -> Life {
    run.owner.as_ref().map_or(Life::Unknown, Owner::life)
}

/// The same for people.
pub(super) fn without_end(run: &Unended) -> String {
    let state = match (life(run), &run.owner) {
        (Life::Running, Some(owner)) => format!("it is under way, in process {}", owner.pid),
        (Life::Gone, Some(owner)) => {
            format!("its process {} was killed; the next writer says so in the trail", owner.pid)
        }
        (Life::OtherBoot, _) => "it is of another boot, so nothing of it is left on this machine".to_owned(),
        (_, Some(owner)) => format!("whether its process {} is there cannot be told from here", owner.pid),
        (_, None) => "its record does not say whose it is".to_owned(),
    };
    format!("run {} began with record {}, {}, and has no end: {state}", run.run, run.seq, run.time)
}

fn bad<'a>(p: &Problem, warnings: &'a [String]) -> Verdict<'a> {
    let missing = match &p.wrong {
        Wrong::Gone { anchored, hash, trail } => {
            Some(serde_json::json!({ "record": anchored, "hash": audit::hex(hash), "trail": trail }))
        }
        _ => None,
    };
    Verdict {
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

/// Verifies a trail and tells what was found; 1 where it does not hold together.
pub(super) fn verify(
    dir: &Path,
    key: Option<&str>,
    anchor: Option<String>,
    trail: Option<&str>,
    json: bool,
) -> Result<i32, Refusal> {
    let signer = key.map(PublicKey::parse).transpose().map_err(|e| refused(&e))?;
    let anchors = match &anchor {
        Some(file) => audit::anchored(Path::new(file)).map_err(|e| unanchored(file, &e))?,
        None => Anchored::new(),
    };
    let anchors = trail.into_iter().fold(anchors, |anchors, trail| anchors.of(trail));
    if let Some(file) = anchor.filter(|_| anchors.is_empty()) {
        return Err(Refusal::new("audit", format!("{file} holds no anchored checkpoint of this trail"))
            .hint("`cofferdam audit checkpoint --key FILE --anchor file:PATH` writes one"));
    }
    let (code, verdict, text) = match audit::verify(dir, signer, &anchors, &mut |_| {}) {
        Ok(v) => (0, None, Some(v)),
        Err(Failed::Io(e)) => return Err(unread(dir, &e)),
        Err(Failed::Wrong(p)) if p.wrong == Wrong::Empty => {
            return Err(Refusal::new("audit", format!("there is no record in {}", dir.display()))
                .hint("`cofferdam run --audit-trail DIR` writes a trail"));
        }
        Err(Failed::Wrong(p)) => (1, Some(p), None),
    };
    let warnings = warnings(dir);
    warnings.iter().for_each(|told| print_note(told, None));
    match (verdict, text) {
        (Some(p), _) if json => print_json(&bad(&p, &warnings)),
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
        (_, Some(v)) if json => print_json(&good(&v, &warnings)),
        (_, Some(v)) => print(&told(&v, anchors.is_empty())),
        (None, None) => Ok(()),
    }
    .map(|()| code)
}

/// What makes a trail worth less than it looks, whatever stands in it.
fn warnings(dir: &Path) -> Vec<String> {
    match audit::open_to_others(dir) {
        Ok(None) => Vec::new(),
        Ok(Some(path)) => {
            let path = path.display();
            vec![format!(
                "warning: others may write {path}, and could have written all of this trail anew; chmod go-w {path}"
            )]
        }
        // What is not there is told as that.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => vec![format!("warning: who may write {} cannot be told: {e}", dir.display())],
    }
}

fn told(v: &Verified, unanchored: bool) -> String {
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
    for run in v.unended.iter().take(TOLD) {
        text.push_str(&format!("{}\n", without_end(run).replace('\n', "\\n")));
    }
    let more = v.unended.len().saturating_sub(TOLD) as u64 + v.uncounted;
    if more > 0 {
        text.push_str(&format!("{more} more runs have no end; --json lists them\n"));
    }
    text.push_str(&match (unanchored, v.anchored) {
        (true, _) => "no anchor was compared: whether records are missing at the end cannot be told\n".to_owned(),
        (false, n) => format!("{n} anchored checkpoints are there\n"),
    });
    printable(&text)
}

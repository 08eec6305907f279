//! `cofferdam audit keygen` and `checkpoint`: makes a signing key, and signs a trail as it ends now.

use std::path::Path;

use cofferdam_engine::audit::{self, Anchor, CheckpointKey, Trail, TrailOptions};
use cofferdam_engine::host_programs;

use super::errors::{refused, unreadable};
use crate::output::stdout::{print, print_json};
use crate::refusal::CliRefusal;

/// Writes a new key into a file and prints its public part.
pub(super) fn keygen(file: &Path, json: bool) -> Result<i32, CliRefusal> {
    let key = CheckpointKey::make(file).map_err(|e| refused(&e))?.public().text();
    if json { print_json(&serde_json::json!({ "key": key })) } else { print(&format!("{key}\n")) }.map(|()| 0)
}

/// Signs the trail with a key, and reports the checkpoint to the anchor.
pub(super) fn checkpoint(dir: &Path, key: Option<String>, anchor: Option<&str>, json: bool) -> Result<i32, CliRefusal> {
    let file = key.ok_or_else(|| {
        CliRefusal::new("arguments", "a checkpoint needs a key").hint("cofferdam audit checkpoint --key audit.key")
    })?;
    let key = CheckpointKey::read(Path::new(&file)).map_err(|e| refused(&e))?;
    let anchor = anchor.map(Anchor::parse).transpose().map_err(|e| CliRefusal::new("arguments", e))?;
    let anchor = anchor.map(installed).transpose()?;
    // Opening the trail would create it.
    std::fs::metadata(dir).map_err(|e| unreadable(dir, &e))?;
    let options = TrailOptions { key: Some(key), anchor, of_others: true, ..TrailOptions::default() };
    let trail = Trail::open(dir, options).map_err(|e| refused(&e))?;
    let Some(link) = trail.checkpoint().map_err(|e| refused(&e))? else {
        return Err(CliRefusal::new("audit", format!("there is no record in {}", dir.display())));
    };
    if json {
        print_json(&serde_json::json!({ "record": link.seq, "hash": audit::hex(&link.hash) }))
    } else {
        print(&format!("record {}: {}\n", link.seq, audit::hex(&link.hash)))
    }
    .map(|()| 0)
}

/// The anchor with a program that has no path looked for where [programs are installed](host_programs): it runs outside of every
/// sandbox.
fn installed(anchor: Anchor) -> Result<Anchor, CliRefusal> {
    let Anchor::Command(mut argv) = anchor else { return Ok(anchor) };
    if let Some(name) = argv.first_mut().filter(|name| !name.contains('/')) {
        let found = host_programs::installed(name, &[]).and_then(|file| file.into_os_string().into_string().ok());
        *name = found.ok_or_else(|| {
            let passed_over = host_programs::passed_over(name);
            let shown = cofferdam_policy::text::name(name);
            CliRefusal::new("arguments", format!("the anchor's program {shown} was not found on PATH{passed_over}"))
                .hint("name it by its path: command:/path/to/program")
        })?;
    }
    Ok(Anchor::Command(argv))
}

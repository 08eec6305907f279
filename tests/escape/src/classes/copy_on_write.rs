//! Copy-on-write layers, and what --keep-changes carries out of them. Data only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cofferdam_policy::{Access, Field};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin};
use crate::run::Run;

const ROW: Attack = Attack { class: Class::CopyOnWrite, fields: &[Field::Mounts], ..ATTACK };

/// Copy-on-write layers, and what --keep-changes carries out of them.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "write-through-layer",
        why: "A write must stay in the layer",
        args: &["write", "{cow}/victim"],
        settings: &[Setting::Cow],
        held: &[End::Any],
        proof: Proof::Changed("{cow}/victim"),
        twin: Twin::Inside(&[Setting::Bind("{cow}", "{cow}", Access::ReadWrite)], &[]),
        ..ROW
    },
    Attack {
        name: "create-through-layer",
        why: "A new file must stay in the layer",
        args: &["create", "{cow}/fresh"],
        settings: &[Setting::Cow],
        held: &[End::Any],
        proof: Proof::Exists("{cow}/fresh"),
        twin: Twin::Inside(&[Setting::Bind("{cow}", "{cow}", Access::ReadWrite)], &[]),
        ..ROW
    },
    Attack {
        name: "unlink-through-layer",
        why: "A removal must stay in the layer",
        args: &["unlink", "{cow}/victim"],
        settings: &[Setting::Cow],
        held: &[End::Any],
        proof: Proof::Changed("{cow}/victim"),
        twin: Twin::Inside(&[Setting::Bind("{cow}", "{cow}", Access::ReadWrite)], &[]),
        ..ROW
    },
    Attack {
        name: "reopen-below-layer",
        why: "Reopens a read descriptor, taken before the copy, for writing",
        args: &["reopen-write", "{cow}/sub/victim"],
        settings: &[Setting::Cow],
        held: &[End::Any],
        proof: Proof::Changed("{cow}/sub/victim"),
        twin: Twin::Inside(&[Setting::Bind("{cow}", "{cow}", Access::ReadWrite)], &[]),
        ..ROW
    },
    Attack {
        name: "export-symlink",
        why: "Leaves a symbolic link to a host file in the layer",
        args: &["symlink-at", "{out}/victim", "{cow}/link"],
        settings: &[Setting::Cow, Setting::Keep],
        held: &[End::Any],
        proof: Proof::Run(kept_more_than_links),
        twin: Twin::Dose(&[Setting::Cow, Setting::Keep], &["create", "{cow}/fresh"], kept_fresh),
        ..ROW
    },
    Attack {
        name: "export-fifo",
        why: "Leaves a FIFO in the layer",
        args: &["mkfifo", "{cow}/pipe"],
        settings: &[Setting::Cow, Setting::Keep],
        held: &[End::Any],
        proof: Proof::Run(kept_odd),
        twin: Twin::Dose(&[Setting::Cow, Setting::Keep], &["create", "{cow}/fresh"], kept_fresh),
        ..ROW
    },
    Attack {
        name: "export-setuid",
        why: "Leaves a setuid file in the layer",
        args: &["suid-chmod", "{cow}/left"],
        settings: &[Setting::Cow, Setting::Keep],
        held: &[End::Any],
        proof: Proof::Run(kept_odd),
        twin: Twin::Dose(&[Setting::Cow, Setting::Keep], &["create", "{cow}/fresh"], kept_fresh),
        ..ROW
    },
    Attack {
        name: "export-device",
        why: "Leaves a 0:0 character device in the layer",
        args: &["whiteout", "{cow}/node"],
        settings: &[Setting::Cow, Setting::Keep],
        held: &[End::Any],
        proof: Proof::Run(kept_odd),
        twin: Twin::Dose(&[Setting::Cow, Setting::Keep], &["create", "{cow}/fresh"], kept_fresh),
        ..ROW
    },
    Attack {
        name: "export-through-symlink",
        why: "Puts a link to the host where a directory was, and a file behind it",
        args: &["symlink-dir", "{out}", "{cow}/sub", "{cow}/moved"],
        settings: &[Setting::Cow, Setting::Keep],
        held: &[End::Any],
        proof: Proof::Exists("{out}/planted"),
        twin: Twin::Dose(&[Setting::Cow, Setting::Keep], &["create", "{cow}/fresh"], kept_fresh),
        ..ROW
    },
    Attack {
        name: "protected-in-layer",
        why: "Writes a protected file of a copy-on-write tree, for the export",
        args: &["write", "{cow}/.bashrc"],
        fields: &[Field::Protected],
        settings: &[Setting::Cow],
        twin: Twin::Inside(&[Setting::Cow, Setting::Unprotected], &[]),
        ..ROW
    },
];

fn walk(directory: &Path, see: &mut dyn FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
        see(&entry.path(), &metadata);
        if metadata.is_dir() {
            walk(&entry.path(), see);
        }
    }
}

/// A file was kept where only links were left: a link was followed.
fn kept_more_than_links(run: &Run) -> bool {
    let mut followed = false;
    walk(&run.kept, &mut |_, m| followed |= m.is_file());
    followed
}

/// Something else than plain files, directories and links was kept, or a file with a setuid or setgid bit.
fn kept_odd(run: &Run) -> bool {
    let mut odd = false;
    walk(&run.kept, &mut |_, m| {
        odd |= !m.is_symlink() && (!(m.is_dir() || m.is_file()) || m.permissions().mode() & 0o6000 != 0);
    });
    odd
}

fn kept_fresh(run: &Run) -> bool {
    let mut found = false;
    walk(&run.kept, &mut |path, m| found |= m.is_file() && path.ends_with("fresh"));
    found
}

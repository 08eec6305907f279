//! Protected paths inside a writable tree. Data only.

use cofferdam_policy::{Access, Field};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting, Twin};

const ROW: Attack = Attack { class: Class::Protected, fields: &[Field::Protected], settings: &[Setting::Rw], ..ATTACK };

/// Protected paths inside a writable tree.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "write-git-config",
        why: "Writes .git/config",
        args: &["write", "{rw}/.git/config"],
        proof: Proof::Changed("{rw}/.git/config"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "plant-git-hook",
        why: "Creates .git/hooks, which is missing, and a hook",
        args: &["mkdir-plant", "{rw}/.git/hooks", "pre-commit"],
        proof: Proof::Exists("{rw}/.git/hooks/pre-commit"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "move-git-away",
        why: "mv .git x; mkdir -p .git/hooks",
        args: &["mv-plant", "{rw}/.git", "{rw}/x", "hooks", "pre-commit"],
        proof: Proof::Exists("{rw}/.git/hooks/pre-commit"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "plant-missing-git",
        why: "Creates a whole .git/hooks where there is no .git",
        args: &["mkdir-plant", "{cow}/.git/hooks", "pre-commit"],
        settings: &[Setting::Bind("{cow}", "{cow}", Access::ReadWrite)],
        proof: Proof::Exists("{cow}/.git/hooks/pre-commit"),
        twin: Twin::Inside(&[Setting::Bind("{cow}", "{cow}", Access::ReadWrite), Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "write-bashrc",
        why: "Writes .bashrc",
        args: &["write", "{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "truncate-bashrc",
        why: "Empties .bashrc",
        args: &["truncate", "{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "recreate-bashrc",
        why: "Removes .bashrc and writes another",
        args: &["unlink-plant", "{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "rename-over-bashrc",
        why: "Renames a file of its own over .bashrc",
        args: &["rename-over", "{rw}/mine", "{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "exchange-git",
        why: "Exchanges .git with a directory of its own",
        args: &["exchange", "{rw}/plain", "{rw}/.git"],
        proof: Proof::Exists("{rw}/plain/config"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "link-bashrc",
        why: "Hard-links .bashrc and writes through the link",
        args: &["link-write", "{rw}/.bashrc", "{rw}/mine"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "symlink-to-bashrc",
        why: "Writes through a symbolic link",
        args: &["symlink-write", "{rw}/.bashrc", "{rw}/mine"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "reopen-bashrc",
        why: "Reopens a descriptor through /proc/self/fd",
        args: &["reopen-write", "{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "bashrc-by-proc-root",
        why: "By /proc/self/root",
        args: &["write", "/proc/self/root{rw}/.bashrc"],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "create-missing-zshrc",
        why: "Creates .zshrc, which is missing",
        args: &["create", "{rw}/.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "symlink-missing-zshrc",
        why: "Makes .zshrc a symbolic link",
        args: &["symlink-at", "{rw}/victim", "{rw}/.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "rename-to-missing-zshrc",
        why: "Renames a file of its own to .zshrc",
        args: &["rename-over", "{rw}/mine", "{rw}/.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "git-becomes-symlink",
        why: "Replaces .git by a link to a directory of its own",
        args: &["symlink-dir", "{rw}/plain", "{rw}/.git", "{rw}/x"],
        proof: Proof::Exists("{rw}/plain/planted"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "bashrc-by-twin-bind",
        why: "The same directory bound a second time",
        args: &["write", "{twin}/.bashrc"],
        fields: &[Field::Protected, Field::Mounts],
        settings: &[Setting::Rw, Setting::Bind("{rw}", "{twin}", Access::ReadWrite)],
        proof: Proof::Changed("{rw}/.bashrc"),
        twin: Twin::Inside(
            &[Setting::Rw, Setting::Bind("{rw}", "{twin}", Access::ReadWrite), Setting::Unprotected],
            &[],
        ),
        ..ROW
    },
    Attack {
        name: "race-of-the-argument",
        why: "Flips the path in memory during the call",
        args: &["race-text", "{rw}/.zshrc", "{rw}/.plain"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "race-of-a-link",
        why: "Flips a symbolic link between .git and a directory of its own",
        args: &["race-link", "{rw}/.git", "{rw}/plain", "{rw}/flip", "config"],
        proof: Proof::Changed("{rw}/.git/config"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "nameless-file",
        why: "Gives an O_TMPFILE the name .zshrc",
        args: &["tmpfile-link", "{rw}", "{rw}/.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "mknod-missing-zshrc",
        why: "mknod of a plain file named .zshrc",
        args: &["mknod-regular", "{rw}/.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "mkdir-missing-vimrc",
        why: "Makes a directory where an editor's directory is protected",
        args: &["mkdir", "{rw}/.vim"],
        proof: Proof::Exists("{rw}/.vim"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "create-by-descriptor",
        why: "openat relative to a directory's descriptor",
        args: &["dirfd-create", "{rw}", ".zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
    Attack {
        name: "create-by-crooked-path",
        why: "Through ., .. and doubled slashes",
        args: &["create", "{rw}/plain/..//./.zshrc"],
        proof: Proof::Exists("{rw}/.zshrc"),
        twin: Twin::Inside(&[Setting::Rw, Setting::Unprotected], &[]),
        ..ROW
    },
];

//! Options about files: the root view, mounts, and denied and protected paths. Rows only.

use cofferdam_policy::{Access, Field, Mount, Root};

use crate::args::option::{BLANK, Heading, PolicyOption, Takes};
use crate::args::values;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "volume",
        short: Some('v'),
        takes: Takes::Many("SRC:DST[:MODE]"),
        help: "Show a host path; MODE ro (default), rw, cow",
        more: "`ro` can be read, `rw` changes the host's own files, `cow` (copy-on-write) keeps changes in a layer in \
               memory that is listed afterwards and dropped, or kept with --keep-changes. Programs on it can be \
               executed, but on a writable one outside of the working directory only with `,exec`; `,noexec` forbids \
               it. `,optional` leaves the mount out where nothing is at SRC, which the answer says. An option with \
               the target of a default mount replaces it: `-v .:.:rw` makes the working directory writable.",
        heading: Heading::Files,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        apply: |draft, text| {
            let volume = values::volume(text)?;
            let source = draft.caller.absolute(&draft.caller.expanded(&volume.source));
            let executable = volume.access == Access::ReadOnly || draft.caller.works_in(&source);
            let mount = Mount::Bind {
                target: draft.caller.absolute_inside(&volume.target),
                access: volume.access,
                exec: volume.exec.unwrap_or(executable),
                optional: volume.optional,
                source,
            };
            if volume.access == Access::CopyOnWrite {
                draft.policy.require(Field::Layer);
            }
            draft.mount(mount);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "here",
        takes: Takes::Optional("MODE", "rw"),
        help: "Let it write the working directory, or a copy",
        more: "Short for `-v .:.:rw` or `-v .:.:cow` (`--here=cow`), at the directory's own path. It is this directory alone, whatever lies \
               above it. Code of `eval` starts in it.",
        heading: Heading::Files,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        apply: |draft, text| {
            let access = match text {
                "rw" => Access::ReadWrite,
                "cow" => Access::CopyOnWrite,
                _ => return Err(format!("`{text}` is neither rw nor cow; write it like --here or --here=cow")),
            };
            draft.caller.require_project()?;
            draft.caller.require_no_home()?;
            if access == Access::CopyOnWrite {
                draft.policy.require(Field::Layer);
            }
            let cwd = draft.caller.cwd.clone();
            // Code starts elsewhere unless it is to write here.
            draft.policy.command.cwd.get_or_insert_with(|| cwd.clone());
            draft.mount(Mount::Bind { source: cwd.clone(), target: cwd, access, exec: true, optional: false });
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "tmpfs",
        takes: Takes::Many("DST[:size=64m]"),
        help: "Mount an empty file system in memory",
        more: "Add `,exec` to allow programs on it to be executed.",
        heading: Heading::Files,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        apply: |draft, text| {
            let tmpfs = values::tmpfs(text)?;
            let target = draft.caller.absolute_inside(&tmpfs.target);
            draft.mount(Mount::Tmpfs { target, size_mb: tmpfs.size_mb, exec: tmpfs.exec });
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "read-only",
        help: "Make every volume read-only, the policy file's too",
        heading: Heading::Files,
        rare: true,
        leaves: &["filesystem.mounts"],
        requires: &[Field::Mounts],
        late: true,
        apply: |draft, _| {
            for mount in &mut draft.policy.filesystem.mounts {
                if let Mount::Bind { access, .. } = mount {
                    *access = Access::ReadOnly;
                }
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "root",
        takes: Takes::One("VIEW|DIR"),
        help: "What / is: host, minimal, interpreter, or DIR",
        more: "Read-only in each case. `host` is without /run, /tmp, devices and what is denied. `minimal` has the system's \
               programs and libraries, `interpreter` of them only the program, its interpreter and their libraries.",
        heading: Heading::Files,
        leaves: &["filesystem.root"],
        requires: &[Field::Root],
        apply: |draft, text| {
            draft.policy.filesystem.root = match text {
                "host" => Root::Host,
                "minimal" => Root::Minimal,
                "interpreter" => Root::Interpreter,
                "" => return Err("an empty root; write it like host, minimal or ./rootfs".into()),
                dir => {
                    let path = draft.caller.absolute(dir);
                    if !dir.contains('/') && std::fs::metadata(&path).is_err() {
                        return Err(format!(
                            "`{dir}` is neither `host`, `minimal` nor `interpreter`, nor a directory here\n\
                             hint: --root host, --root minimal or --root ./DIR"
                        ));
                    }
                    Root::Directory(path)
                }
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "image",
        takes: Takes::One("REF|TAR|DIR"),
        help: "What / is in a container: image, tarball, DIR",
        more: "Read-only. REF is an image's name, tag or digest; what the engine has not is pulled. A path, which begins with \
               `/` or `.`, is a tarball or a directory of this host.",
        heading: Heading::Files,
        leaves: &["filesystem.root"],
        requires: &[Field::Root],
        apply: |draft, text| {
            let local = text.starts_with(['/', '.']);
            let path = if local { draft.caller.absolute(text) } else { text.to_owned() };
            let there = if local { std::fs::metadata(&path) } else { Err(std::io::ErrorKind::NotFound.into()) };
            if let Some(error) = there.as_ref().err().filter(|_| local) {
                return Err(format!(
                    "cannot use {path} as an image: {error}\nhint: a path names a tarball or a directory of this host; \
                     an image of an engine's store or of a registry has no `/` or `.` in front: --image alpine:3.20"
                ));
            }
            let directory = there.is_ok_and(|meta| meta.is_dir());
            draft.policy.filesystem.root = if directory { Root::Directory(path) } else { Root::Image(path) };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "deny",
        takes: Takes::Many("PATH"),
        help: "A path that can be neither read nor written",
        more: "Holds also when it does not exist yet.",
        heading: Heading::Files,
        leaves: &["filesystem.deny"],
        requires: &[Field::Deny],
        apply: |draft, text| {
            draft.require_one_path("deny", text)?;
            let path = draft.caller.absolute(text);
            if !draft.policy.filesystem.deny.contains(&path) {
                draft.policy.filesystem.deny.push(path);
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "protect",
        takes: Takes::Many("PATH"),
        help: "A path that can be read but never written",
        more: "Holds also when it does not exist yet. A name without a leading `/` or `./`, such as .git/hooks, holds \
               in every writable volume.",
        heading: Heading::Files,
        rare: true,
        leaves: &["filesystem.protected"],
        requires: &[Field::Protected],
        apply: |draft, text| {
            draft.require_one_path("protect", text)?;
            let here = text.starts_with("./") || text.starts_with("../") || text == ".";
            let path = if here { draft.caller.absolute(text) } else { text.to_owned() };
            if !draft.policy.filesystem.protected.contains(&path) {
                draft.policy.filesystem.protected.push(path);
            }
            Ok(())
        },
        ..BLANK
    },
];

//! The sandbox's file system: sources opened, a scratch file system staged, the root built, everything attached, pivot.
//!
//! ```text
//! clone sources ─▶ stage scratch ─▶ root attached, chroot (cwd: scratch) ─▶ mounts ─▶ pivot ─▶ old root and scratch let go
//!                                                                         └─ another plan ─▶ sources ─▶ mounts ─┘
//! ```
//!
//! Every mount is made detached, given its attributes, and only then attached; or it is bound from a mount that has them,
//! which a bind keeps: there is no moment at which a mount stands in the tree with weaker attributes than it will keep.
//! Nothing is resolved by name twice. A target that others than the system's administrator could have made is resolved
//! within the new root and without magic links, and attached to by descriptor.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::fault::{StepFault, StepResult, at};
use crate::plan::MappedPlan;
use crate::report::send_layer;
use crate::sys::{self, Str};
use crate::uapi::*;
use crate::wire::{MountOp, TERMINALS, op, op_flag, step};

const MAX_OPS: usize = step::MAX_MOUNTS as usize;

const EMPTY: Str = c"".as_ptr().cast();
/// What every mount of the scratch has from the start; a clone keeps it.
const SCRATCH_ATTRS: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
/// What hides something.
const MASK_ATTRS: u64 = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

/// What `sources` opened: one detached tree per mount step that has a source. Static, and 0 for none, so that only the
/// pages that a plan uses are ever touched.
static TREES: [AtomicI32; MAX_OPS] = [const { AtomicI32::new(0) }; MAX_OPS];

fn tree_of(step: usize) -> i32 {
    TREES[step].load(Ordering::Relaxed) - 1
}

/// The new root under way: descriptors of the scratch file system, of the new root and of the old one.
pub struct NewRoot {
    scratch: i32,
    root: i32,
    outer: i32,
    /// Which views of the scratch are attached in it, by their attributes.
    views: u16,
}

/// Nothing that is mounted from here on reaches the host, and nothing that the host mounts reaches us.
pub fn private() -> StepResult {
    sys::mount(EMPTY, c"/".as_ptr().cast(), EMPTY, MS_REC | MS_PRIVATE, core::ptr::null())
        .map_err(at(step::private::SET))?;
    Ok(())
}

/// Opens and clones every source of a plan's own mounts, with its attributes set, before anything is mounted over anything.
pub fn sources(plan: &MappedPlan) -> StepResult {
    let ops: &[MountOp] = plan.items(plan.header().mounts);
    if ops.len() > MAX_OPS {
        return Err(at(step::source::TOO_MANY)(errno::EINVAL));
    }
    let mut devices = false;
    for (i, m) in ops.iter().enumerate() {
        let fault = at(step::source::MOUNT.item(i));
        let tree = match m.kind {
            op::DEVICE if devices => continue,
            op::DEVICE => {
                devices = true;
                clone_tree(AT_FDCWD, c"/dev".as_ptr().cast(), true).map_err(&fault)?
            }
            op::ROOT_HOST => clone_tree(AT_FDCWD, c"/".as_ptr().cast(), true).map_err(&fault)?,
            op::ROOT_DIR | op::BIND | op::OVERLAY | op::WHITEOUT if m.src != 0 || m.fd >= 0 => {
                if m.fd >= 0 {
                    m.fd
                } else {
                    match open_source(plan, m) {
                        Ok(tree) => tree,
                        Err(errno::ENOENT | errno::ENOTDIR) if m.flags & op_flag::OPTIONAL != 0 => continue,
                        Err(e) => return Err(fault(e)),
                    }
                }
            }
            _ => continue,
        };
        if m.kind != op::OVERLAY && m.kind != op::WHITEOUT {
            set_attr(tree, m.a).map_err(&fault)?;
        }
        TREES[i].store(tree + 1, Ordering::Relaxed);
    }
    Ok(())
}

fn open_source(plan: &MappedPlan, m: &MountOp) -> Result<i32, i32> {
    if m.flags & op_flag::FOLLOW != 0 {
        // Only the system's administrator can replace it, or any link on the way.
        return clone_tree(AT_FDCWD, plan.str(m.src), m.flags & op_flag::RECURSIVE != 0);
    }
    let found = sys::openat2(AT_FDCWD, plan.str(m.src), O_PATH | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)? as i32;
    if m.c != 0 {
        let mut st = sys::Statx::new();
        sys::statx(found, EMPTY, AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
        if st.dev() != m.b || st.ino != m.c {
            return Err(errno::ESTALE); // it was replaced since the owner looked at it
        }
    }
    let tree = clone_tree(found, EMPTY, m.flags & op_flag::RECURSIVE != 0)?;
    sys::close(found)?;
    Ok(tree)
}

impl NewRoot {
    /// Stages the scratch file system and performs the plan's mounts.
    pub fn begin(plan: &MappedPlan) -> Result<NewRoot, StepFault> {
        let h = plan.header();
        // Modes are the plan's to say while the file system is built; nothing else runs yet that could see them.
        sys::umask(0).map_err(at(step::scratch::UMASK))?;
        let outer = sys::openat2(AT_FDCWD, c"/".as_ptr().cast(), O_PATH | O_CLOEXEC, 0, 0)
            .map_err(at(step::pivot::OPEN_OLD))? as i32;
        let scratch = stage_scratch(h.scratch_bytes, h.scratch_inodes)?;
        let mut root = NewRoot { scratch, root: -1, outer, views: 0 };
        root.mount(plan)?;
        Ok(root)
    }

    fn mount(&mut self, plan: &MappedPlan) -> StepResult {
        let ops: &[MountOp] = plan.items(plan.header().mounts);
        for (i, m) in ops.iter().enumerate() {
            match self.perform(plan, i, m, tree_of(i)) {
                Ok(()) => {}
                Err(errno::ENOENT | errno::ENOTDIR | errno::EACCES) if m.flags & op_flag::OPTIONAL != 0 => {}
                // What the sandbox's own user cannot reach (init resolves as that user) needs no hiding. What was there when
                // the owner looked and is not any more was moved: under its new name nothing would protect it.
                Err(errno::EACCES) if matches!(m.kind, op::MASK | op::SELF_BIND) => {}
                Err(e) => return Err(at(step::mount::MOUNT.item(i))(e)),
            }
        }
        Ok(())
    }

    /// Makes the new root the only one.
    pub fn enter(self) -> StepResult {
        enter(self.outer).map_err(at(step::pivot::ENTER_OLD))?; // pivot_root(2) swaps the namespace's root, which must be ours again
        sys::close(self.outer).map_err(at(step::pivot::CLOSE_OLD))?;
        sys::fchdir(self.root).map_err(at(step::pivot::ENTER_NEW))?;
        let here: Str = c".".as_ptr().cast();
        sys::pivot_root(here, here).map_err(at(step::pivot::PIVOT))?;
        // The old root, which is stacked here now, and with it the scratch and what is attached in it.
        sys::umount2(here, MNT_DETACH).map_err(at(step::pivot::DETACH))?;
        sys::chdir(c"/".as_ptr().cast()).map_err(at(step::pivot::ENTER_ROOT))?;
        sys::umask(0o022).map_err(at(step::pivot::UMASK))?;
        Ok(())
    }
}

/// Mounts the scratch file system over a directory of the old root that every system has.
fn stage_scratch(bytes: u64, inodes: u64) -> Result<i32, StepFault> {
    let fault = at(step::scratch::CREATE);
    let scratch = tmpfs(bytes, inodes, 0o755, SCRATCH_ATTRS).map_err(&fault)?;
    for dir in [c"/tmp", c"/run", c"/mnt", c"/var"] {
        match attach(scratch, AT_FDCWD, dir.as_ptr().cast(), false) {
            Ok(()) => {
                sys::mkdirat(scratch, c"root".as_ptr().cast(), 0o755).map_err(at(step::scratch::ROOT))?;
                sys::mkdirat(scratch, c"mask".as_ptr().cast(), 0).map_err(at(step::scratch::MASK_DIRECTORY))?;
                let f = sys::openat(scratch, c"maskfile".as_ptr().cast(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0)
                    .map_err(at(step::scratch::MASK_FILE))?;
                sys::close(f as i32).map_err(at(step::scratch::CLOSE_MASK_FILE))?;
                return Ok(scratch);
            }
            Err(errno::ENOENT | errno::ENOTDIR) => {}
            Err(e) => return Err(at(step::scratch::ATTACH)(e)),
        }
    }
    Err(at(step::scratch::NO_DIRECTORY)(errno::ENOENT))
}

impl NewRoot {
    fn perform(&mut self, plan: &MappedPlan, i: usize, m: &MountOp, tree: i32) -> Result<(), i32> {
        let (src, dst) = (plan.str(m.src), plan.str(m.dst));
        let recursive = m.flags & op_flag::RECURSIVE != 0;
        let system = m.flags & op_flag::SYSTEM != 0;
        match m.kind {
            op::ROOT_HOST | op::ROOT_DIR => self.set_root(tree),
            op::ROOT_SCRATCH => {
                let tree = clone_tree(self.scratch, c"rootfs".as_ptr().cast(), false)?;
                set_attr(tree, m.a)?;
                self.set_root(tree)
            }
            op::BIND if tree < 0 => Err(errno::ENOENT), // optional, and its source is not there
            op::BIND => self.attach_at(tree, dst, system),
            op::DEVICE => {
                if tree >= 0 {
                    sys::mkdirat(self.scratch, c"devices".as_ptr().cast(), 0o755)?;
                    attach(tree, self.scratch, c"devices".as_ptr().cast(), false)?;
                    sys::close(tree)?;
                }
                let mut from = [0u8; 64];
                bind(name(&mut from, &[b"devices/", plan.text(m.src)], None, b""), dst)
            }
            op::SCRATCH if system && plan.text(m.src).len() < 48 => {
                let mut from = [0u8; 64];
                bind(self.view(m.a | SCRATCH_ATTRS, plan.text(m.src), &mut from)?, dst)
            }
            op::SCRATCH => {
                let tree = clone_tree(self.scratch, src, false)?;
                if m.a & !SCRATCH_ATTRS != 0 {
                    set_attr(tree, m.a)?;
                }
                self.attach_at(tree, dst, false)
            }
            op::TMPFS => {
                let fs = tmpfs(m.b, (m.b / 4096).max(64), m.c, m.a)?;
                if m.flags & op_flag::EXPORT != 0 {
                    sys::mkdirat(fs, src, 0o755)?;
                    send_layer(i as u32, fs)?;
                }
                self.attach_at(fs, dst, system)
            }
            op::PROC => {
                let fs = new_fs(c"proc".as_ptr().cast(), &[(c"hidepid", c"invisible")], m.a)?;
                self.attach_at(fs, dst, system)
            }
            op::DEVPTS => {
                let options = [(c"ptmxmode", c"0666"), (c"mode", c"0600"), (c"max", TERMINALS)];
                let fs = new_fs(c"devpts".as_ptr().cast(), &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)?;
                self.attach_at(fs, dst, system)
            }
            op::MKDIR => match sys::mkdirat(self.scratch, src, m.c as u32) {
                Ok(_) | Err(errno::EEXIST) => Ok(()),
                Err(e) => Err(e),
            },
            op::POINT => {
                let at = self.resolve(dst)?;
                let made = match m.c {
                    0 => sys::mknodat(at, src, u32::from(S_IFREG) | 0o444, 0),
                    _ => sys::mkdirat(at, src, 0o755),
                };
                match made {
                    Ok(_) | Err(errno::EEXIST) => sys::close(at).map(|_| ()),
                    Err(e) => Err(e),
                }
            }
            op::SYMLINK => sys::symlinkat(dst, self.scratch, src).map(|_| ()),
            op::FILE if plan.text(m.dst).is_empty() => {
                sys::mknodat(self.scratch, src, u32::from(S_IFREG) | m.c as u32, 0).map(|_| ())
            }
            op::FILE => {
                let f = sys::openat(self.scratch, src, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, m.c as u32)? as i32;
                let text = plan.text(m.dst);
                let mut done = 0;
                while done < text.len() {
                    done += sys::write(f, text[done..].as_ptr(), text.len() - done)?;
                }
                sys::close(f).map(|_| ())
            }
            op::OVERLAY => self.overlay(plan, i, m, tree),
            op::MASK if system => {
                let mut from = [0u8; 64];
                let file = self.view(MASK_ATTRS, b"maskfile", &mut from)?;
                match bind(file, dst) {
                    Err(errno::ENOTDIR) => bind(self.view(MASK_ATTRS, b"mask", &mut from)?, dst),
                    done => done,
                }
            }
            op::MASK => {
                let at = self.resolve(dst)?;
                let mut st = sys::Statx::new();
                sys::statx(at, EMPTY, AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
                let name: Str = if st.mode & S_IFMT == S_IFDIR { c"mask" } else { c"maskfile" }.as_ptr().cast();
                let tree = clone_tree(self.scratch, name, false)?;
                set_attr(tree, MASK_ATTRS)?;
                attach(tree, at, EMPTY, true)?;
                close_both(tree, at)
            }
            op::SELF_BIND => {
                let at = self.resolve(dst)?;
                let tree = clone_tree(at, EMPTY, recursive)?;
                set_attr(tree, m.a)?;
                attach(tree, at, EMPTY, true)?;
                close_both(tree, at)
            }
            op::WHITEOUT => self.whiteout(plan, i, m, tree),
            _ => Err(errno::EINVAL),
        }
    }

    fn set_root(&mut self, tree: i32) -> Result<(), i32> {
        attach(tree, self.scratch, c"root".as_ptr().cast(), false)?;
        self.root = tree;
        // From here on names are the new root's, those that climb to it as well. Not by a pivot: that stacks the old root
        // on the new one, and `..` steps into what is mounted on the directory that it leads to.
        enter(tree)?;
        sys::fchdir(self.scratch).map(|_| ())
    }

    /// The name, from the scratch, of something in it as a bind of it is to be: a view of the whole scratch with these
    /// attributes is attached in it when first needed.
    fn view(&mut self, attrs: u64, what: &[u8], into: &mut [u8; 64]) -> Result<Str, i32> {
        if self.views >> attrs & 1 == 0 {
            let mut at = [0u8; 64];
            let at = name(&mut at, &[b"view"], Some(attrs), b"");
            sys::mkdirat(self.scratch, at, 0)?;
            let tree = clone_tree(self.scratch, EMPTY, false)?;
            set_attr(tree, attrs)?;
            attach(tree, self.scratch, at, false)?;
            sys::close(tree)?;
            self.views |= 1 << attrs;
        }
        let mut prefix = [0u8; 64];
        name(&mut prefix, &[b"view"], Some(attrs), b"/");
        let len = prefix.iter().position(|&b| b == 0).unwrap_or(0);
        Ok(name(into, &[&prefix[..len], what], None, b""))
    }

    /// A destination inside the new root: links are followed within it, never out of it.
    fn resolve(&self, path: Str) -> Result<i32, i32> {
        let r = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
        Ok(sys::openat2(self.root, path, O_PATH | O_CLOEXEC, 0, r)? as i32)
    }

    fn attach_at(&self, tree: i32, dst: Str, system: bool) -> Result<(), i32> {
        if system {
            sys::move_mount(tree, EMPTY, AT_FDCWD, dst, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS)?;
            return sys::close(tree).map(|_| ());
        }
        let at = self.resolve(dst)?;
        attach(tree, at, EMPTY, true)?;
        close_both(tree, at)
    }

    /// Lower: the source. Upper: a sized tmpfs, which bounds both bytes and inodes; its descriptor goes to the owner,
    /// who reads the changes out of it after the tree is dead.
    fn overlay(&mut self, plan: &MappedPlan, i: usize, m: &MountOp, lower: i32) -> Result<(), i32> {
        let (mut low, mut up) = ([0u8; 64], [0u8; 64]);
        let low = name(&mut low, &[b"lower"], Some(i as u64), b"");
        let up = name(&mut up, &[b"layer"], Some(i as u64), b"");
        let mut st = sys::Statx::new();
        sys::statx(lower, EMPTY, AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
        sys::mkdirat(AT_FDCWD, low, 0o755)?;
        sys::mkdirat(AT_FDCWD, up, 0o755)?;
        attach(lower, AT_FDCWD, low, false)?;
        let layer = tmpfs(m.d, m.e, 0o700, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
        attach(layer, AT_FDCWD, up, false)?;
        sys::mkdirat(layer, c"upper".as_ptr().cast(), 0o700)?;
        sys::mkdirat(layer, c"work".as_ptr().cast(), 0o700)?;
        let f = sys::openat(layer, c"upper".as_ptr().cast(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)? as i32;
        sys::fchmod(f, (st.mode & 0o777) as u32)?;
        sys::close(f)?;
        let (mut u, mut w) = ([0u8; 64], [0u8; 64]);
        let upper = name(&mut u, &[b"layer"], Some(i as u64), b"/upper");
        let work = name(&mut w, &[b"layer"], Some(i as u64), b"/work");
        let fs = sys::fsopen(c"overlay".as_ptr().cast(), FSOPEN_CLOEXEC)? as i32;
        set_string(fs, c"lowerdir".as_ptr().cast(), low)?;
        set_string(fs, c"upperdir".as_ptr().cast(), upper)?;
        set_string(fs, c"workdir".as_ptr().cast(), work)?;
        // It also switches metacopy and redirect_dir off, whatever the module's defaults are: no attribute of a file in the
        // lower directory names another file.
        sys::fsconfig(fs, FSCONFIG_SET_FLAG, c"userxattr".as_ptr().cast(), core::ptr::null(), 0)?;
        // Otherwise directories of one layer keep a list of names as well, for as long as the kernel knows them.
        set_string(fs, c"xino".as_ptr().cast(), c"off".as_ptr().cast())?;
        sys::fsconfig(fs, FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null(), 0)?;
        let mounted = sys::fsmount(fs, FSMOUNT_CLOEXEC, m.a)? as i32;
        sys::close(fs)?;
        self.attach_at(mounted, plan.str(m.dst), false)?;
        send_layer(i as u32, layer)?;
        close_both(lower, layer)
    }

    /// A read-only view of dst below a layer of whiteouts, which hides all its names by one mount.
    fn whiteout(&mut self, plan: &MappedPlan, i: usize, m: &MountOp, layer: i32) -> Result<(), i32> {
        let (mut top, mut low) = ([0u8; 64], [0u8; 64]);
        let top = name(&mut top, &[b"hide"], Some(i as u64), b"");
        let low = name(&mut low, &[b"below"], Some(i as u64), b"");
        let at = self.resolve(plan.str(m.dst))?;
        let below = clone_tree(at, EMPTY, false)?;
        sys::mkdirat(AT_FDCWD, top, 0o755)?;
        sys::mkdirat(AT_FDCWD, low, 0o755)?;
        attach(layer, AT_FDCWD, top, false)?;
        attach(below, AT_FDCWD, low, false)?;
        let mut both = [0u8; 160];
        let mut n = 0;
        for part in [top, c":".as_ptr().cast(), low] {
            let mut p = part;
            // SAFETY: the three parts are NUL-terminated and at most 64 bytes each.
            while unsafe { *p } != 0 {
                // SAFETY: as above.
                both[n] = unsafe { *p };
                // SAFETY: as above.
                p = unsafe { p.add(1) };
                n += 1;
            }
        }
        let fs = sys::fsopen(c"overlay".as_ptr().cast(), FSOPEN_CLOEXEC)? as i32;
        set_string(fs, c"lowerdir".as_ptr().cast(), both.as_ptr())?;
        sys::fsconfig(fs, FSCONFIG_SET_FLAG, c"userxattr".as_ptr().cast(), core::ptr::null(), 0)?;
        sys::fsconfig(fs, FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null(), 0)?;
        let mounted = sys::fsmount(fs, FSMOUNT_CLOEXEC, m.a)? as i32;
        sys::close(fs)?;
        attach(mounted, at, EMPTY, true)?;
        close_both(mounted, at)?;
        close_both(layer, below)
    }
}

/// Makes a directory the root and the working directory.
fn enter(root: i32) -> Result<(), i32> {
    sys::fchdir(root)?;
    sys::chroot(c".".as_ptr().cast()).map(|_| ())
}

/// Binds something of the scratch, which is the working directory, on a path of the system's in the new root.
fn bind(from: Str, to: Str) -> Result<(), i32> {
    sys::mount(from, to, EMPTY, MS_BIND, core::ptr::null()).map(|_| ())
}

/// `prefix… + number + suffix`, NUL-terminated.
fn name(buf: &mut [u8; 64], prefix: &[&[u8]], number: Option<u64>, suffix: &[u8]) -> Str {
    *buf = [0; 64];
    let mut n = 0;
    let mut put = |bytes: &[u8]| {
        for &b in bytes {
            if n < 63 {
                buf[n] = b;
                n += 1;
            }
        }
    };
    for p in prefix {
        put(p);
    }
    if let Some(number) = number {
        let mut digits = [0u8; 24];
        let mut p = sys::decimal(number, &mut digits);
        // SAFETY: `decimal` gives a NUL-terminated string inside `digits`.
        while unsafe { *p } != 0 {
            // SAFETY: as above.
            put(&[unsafe { *p }]);
            // SAFETY: as above.
            p = unsafe { p.add(1) };
        }
    }
    put(suffix);
    buf.as_ptr()
}

fn close_both(a: i32, b: i32) -> Result<(), i32> {
    sys::close(a)?;
    sys::close(b).map(|_| ())
}

fn clone_tree(dir: i32, path: Str, recursive: bool) -> Result<i32, i32> {
    let mut flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    Ok(sys::open_tree(dir, path, flags)? as i32)
}

/// Adds attributes to a whole tree; never takes one away.
fn set_attr(tree: i32, attrs: u64) -> Result<(), i32> {
    let attr = [attrs, 0, MS_PRIVATE as u64, 0];
    sys::mount_setattr(tree, EMPTY, AT_EMPTY_PATH | AT_RECURSIVE, attr.as_ptr(), MOUNT_ATTR_SIZE_VER0).map(|_| ())
}

fn attach(tree: i32, dir: i32, path: Str, by_fd: bool) -> Result<(), i32> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | if by_fd { MOVE_MOUNT_T_EMPTY_PATH } else { 0 };
    sys::move_mount(tree, EMPTY, dir, path, flags).map(|_| ())
}

fn set_string(fs: i32, key: Str, value: Str) -> Result<(), i32> {
    sys::fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0).map(|_| ())
}

fn tmpfs(bytes: u64, inodes: u64, mode: u64, attrs: u64) -> Result<i32, i32> {
    let fs = sys::fsopen(c"tmpfs".as_ptr().cast(), FSOPEN_CLOEXEC)? as i32;
    let mut buf = [0u8; 24];
    set_string(fs, c"size".as_ptr().cast(), sys::decimal(bytes, &mut buf))?;
    set_string(fs, c"nr_inodes".as_ptr().cast(), sys::decimal(inodes, &mut buf))?;
    let octal = [
        b'0' + (mode >> 9 & 7) as u8,
        b'0' + (mode >> 6 & 7) as u8,
        b'0' + (mode >> 3 & 7) as u8,
        b'0' + (mode & 7) as u8,
        0,
    ];
    set_string(fs, c"mode".as_ptr().cast(), octal.as_ptr())?;
    sys::fsconfig(fs, FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null(), 0)?;
    let m = sys::fsmount(fs, FSMOUNT_CLOEXEC, attrs)? as i32;
    sys::close(fs)?;
    Ok(m)
}

fn new_fs(kind: Str, options: &[(&core::ffi::CStr, &core::ffi::CStr)], attrs: u64) -> Result<i32, i32> {
    let fs = sys::fsopen(kind, FSOPEN_CLOEXEC)? as i32;
    for (k, v) in options {
        set_string(fs, k.as_ptr().cast(), v.as_ptr().cast())?;
    }
    sys::fsconfig(fs, FSCONFIG_CMD_CREATE, core::ptr::null(), core::ptr::null(), 0)?;
    let m = sys::fsmount(fs, FSMOUNT_CLOEXEC, attrs)? as i32;
    sys::close(fs)?;
    Ok(m)
}

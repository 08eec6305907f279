//! Reads the plan in place. The owner made it, so its layout is trusted once the magic and the length agree; every
//! offset is still checked against the block, and one that is outside is a fault, not a read.

use crate::fault::{StepFault, at};
use crate::sys::{self, Str};
use crate::uapi::*;
use crate::wire::{Header, MAGIC, Ref, step};

/// The mapped plan.
pub struct MappedPlan {
    base: *const u8,
    len: usize,
}

// SAFETY: the mapping is read-only and stays for the whole life of init.
unsafe impl Sync for MappedPlan {}

impl MappedPlan {
    /// No plan: a placeholder that is never read.
    pub const NONE: MappedPlan = MappedPlan { base: core::ptr::null(), len: 0 };

    /// Maps the plan of this descriptor, read-only and private.
    pub fn map(fd: i32) -> Result<MappedPlan, StepFault> {
        let mut total = [0u32; 4];
        let n = sys::pread(fd, total.as_mut_ptr().cast(), 16, 0).map_err(at(step::plan::READ))?;
        let len = total[2] as usize;
        let magic = total[0] as u64 | (total[1] as u64) << 32;
        if n != 16 || magic != MAGIC || len < core::mem::size_of::<Header>() {
            return Err(at(step::plan::INVALID)(errno::EINVAL));
        }
        let base = sys::mmap(0, len, PROT_READ, MAP_PRIVATE, fd, 0).map_err(at(step::plan::MAP))?;
        Ok(MappedPlan { base: base as *const u8, len })
    }

    /// The fixed part.
    pub fn header(&self) -> &Header {
        // SAFETY: `map` checked that the block holds a header; mmap aligns to a page; every field is an integer.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.header().flags & flag != 0
    }

    /// Items of plain data at `r`.
    pub fn items<T: Copy>(&self, r: Ref) -> &[T] {
        let (off, n) = (r.off as usize, r.len as usize);
        let bytes = n.checked_mul(core::mem::size_of::<T>());
        let end = bytes.and_then(|b| b.checked_add(off));
        match end {
            Some(end) if end <= self.len && off % core::mem::align_of::<T>() == 0 => {
                // SAFETY: the range lies in the mapping, is aligned, and T is one of wire's integer-only structures.
                unsafe { core::slice::from_raw_parts(self.base.add(off).cast::<T>(), n) }
            }
            _ => &[],
        }
    }

    /// Bytes at `r`.
    pub fn bytes(&self, r: Ref) -> &[u8] {
        self.items::<u8>(r)
    }

    /// The NUL-terminated string at `off`. The owner ends the block in NUL, so it always ends inside.
    pub fn str(&self, off: u32) -> Str {
        let off = if (off as usize) < self.len { off as usize } else { self.len - 1 };
        // SAFETY: `off` is inside the mapping.
        unsafe { self.base.add(off) }
    }

    /// The same as bytes without the NUL.
    pub fn text(&self, off: u32) -> &[u8] {
        let p = self.str(off);
        let mut n = 0;
        // SAFETY: `str` gives a string that ends inside the mapping.
        unsafe {
            while *p.add(n) != 0 {
                n += 1;
            }
            core::slice::from_raw_parts(p, n)
        }
    }
}

//! The classic-BPF machine, for the side that receives notifications: runs a classifier program on the call
//! that the kernel reports and says what the filter meant by it.
//!
//! Uses `core` alone, allocates nothing and cannot panic, so that a `no_std` init can include this file as
//! it is. It decides nothing of its own: the classifier is compiled from the same decisions as the filter.
//! Anything it does not understand comes out as [`Verdict::REFUSED`].

/// One classic-BPF instruction, laid out like `struct sock_filter` (linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a conditional jump is taken.
    pub jt: u8,
    /// Instructions to skip when it is not.
    pub jf: u8,
    /// Constant operand.
    pub k: u32,
}

/// The system call that a filter sees, laid out like `struct seccomp_data` (linux/seccomp.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct SeccompData {
    /// System call number.
    pub nr: u32,
    /// `AUDIT_ARCH_*` value.
    pub arch: u32,
    /// Where the call was made.
    pub instruction_pointer: u64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// `ld [k]`: A = the 32-bit word of the data at byte k.
pub(crate) const LD_ABS: u16 = 0x20;
/// `ja k`: skip k instructions.
pub(crate) const JA: u16 = 0x05;
/// `jeq`: A == k.
pub(crate) const JEQ: u16 = 0x15;
/// `jgt`: A > k, unsigned.
pub(crate) const JGT: u16 = 0x25;
/// `jge`: A >= k, unsigned.
pub(crate) const JGE: u16 = 0x35;
/// `jset`: A & k is not 0.
pub(crate) const JSET: u16 = 0x45;
/// `and k`: A &= k.
pub(crate) const AND: u16 = 0x54;
/// `ret k`.
pub(crate) const RET: u16 = 0x06;

/// What the filter meant by a notified call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Verdict(pub u32);

impl Verdict {
    /// Class: not notified, allowed.
    pub const ALLOW: u32 = 0;
    /// Class: refused; reply with the errno.
    pub const DENY: u32 = 1;
    /// Class: creates, links or renames a name; the receiver decides and may reply with the errno (EPERM).
    pub const CREATE: u32 = 2;
    /// Class: takes a path and is only watched; continue.
    pub const TRACE: u32 = 3;
    /// Class: the one exec of a sandbox that may not spawn. Continue the first, refuse every later one with
    /// the errno.
    pub const EXEC: u32 = 4;
    /// Class: the process is killed; such a call is never notified.
    pub const KILL: u32 = 5;
    /// Class: the receiver makes the call itself, or replies with the errno (EPERM).
    pub const PERFORM: u32 = 6;
    /// What a program that cannot be run to its end means: refused with EPERM, no reason known.
    pub const REFUSED: Verdict = Verdict::new(Verdict::DENY, 1, 0, 0);

    /// Packs a verdict: errno in bits 0–11, class in 12–14, [`Self::by_libc`] in 15, reason in 16–19, rule in 20–31.
    pub const fn new(class: u32, errno: u32, reason: u32, rule: u32) -> Verdict {
        Verdict((errno & 0xfff) | (class & 0x7) << 12 | (reason & 0xf) << 16 | (rule & 0xfff) << 20)
    }
    /// One of the class constants.
    pub const fn class(self) -> u32 {
        self.0 >> 12 & 0x7
    }
    /// The errno to reply with when the call is refused.
    pub const fn errno(self) -> u32 {
        self.0 & 0xfff
    }
    /// The same verdict on a call that libc makes by itself.
    pub const fn made_by_libc(self) -> Verdict {
        Verdict(self.0 | 1 << 15)
    }
    /// Whether libc makes such calls by itself (a name service cache, the list of interfaces), so that a refused
    /// one is reported but does not end a run.
    pub const fn by_libc(self) -> bool {
        self.0 >> 15 & 1 == 1
    }
    /// Why, as the number of a `Reason`.
    pub const fn reason(self) -> u32 {
        self.0 >> 16 & 0xf
    }
    /// Index of the custom rule when that is the reason.
    pub const fn rule(self) -> u32 {
        self.0 >> 20
    }
}

/// What a classifier says about a call.
pub fn classify(classifier: &[Insn], call: &SeccompData) -> Verdict {
    match run(classifier, call) {
        Some(value) => Verdict(value),
        None => Verdict::REFUSED,
    }
}

/// Runs a program: the value it returns, or `None` when it leaves its bounds or uses an operation that the
/// compiler never emits. Jumps only go forward, so it always ends.
pub fn run(program: &[Insn], call: &SeccompData) -> Option<u32> {
    let mut a: u32 = 0;
    let mut at: usize = 0;
    loop {
        let insn = program.get(at)?;
        let taken = match insn.code {
            LD_ABS => {
                a = word(call, insn.k)?;
                at += 1;
                continue;
            }
            AND => {
                a &= insn.k;
                at += 1;
                continue;
            }
            JA => {
                at = at.checked_add(insn.k as usize)?.checked_add(1)?;
                continue;
            }
            RET => return Some(insn.k),
            JEQ => a == insn.k,
            JGT => a > insn.k,
            JGE => a >= insn.k,
            JSET => a & insn.k != 0,
            _ => return None,
        };
        at += 1 + usize::from(if taken { insn.jt } else { insn.jf });
    }
}

/// The 32-bit word at a byte offset of `struct seccomp_data`, little endian.
fn word(call: &SeccompData, offset: u32) -> Option<u32> {
    match offset {
        0 => Some(call.nr),
        4 => Some(call.arch),
        8 => Some(call.instruction_pointer as u32),
        12 => Some((call.instruction_pointer >> 32) as u32),
        16..64 if offset.is_multiple_of(4) => {
            let arg = *call.args.get((offset as usize - 16) / 8)?;
            Some(if offset.is_multiple_of(8) { arg as u32 } else { (arg >> 32) as u32 })
        }
        _ => None,
    }
}

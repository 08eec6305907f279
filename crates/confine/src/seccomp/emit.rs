//! From decisions per system call to one classic-BPF program: the architecture checks, a balanced search
//! tree over ranges of numbers that are answered alike, and blocks that check arguments at its leaves.
//!
//! Knows nothing of levels or groups. A call that is answered without looking at its arguments stays so in
//! the program, because the kernel (since 5.11) remembers those and then skips the filter altogether.
//!
//! The program is built from its end: every jump target then exists when the jump is emitted, its distance
//! is known, and one that lies beyond the 255 instructions of a conditional jump gets a `ja` in between.

use super::classify::{AND, Insn, JA, JEQ, JGE, JGT, JSET, LD_ABS, RET};
use super::levels::{Cond, Width};
use super::{Arch, ArgComparison, SeccompError};

/// Longest program that the kernel takes (`BPF_MAXINSNS`).
const MAX_INSNS: usize = 4096;
/// Bit that marks x32 calls on x86_64 (`__X32_SYSCALL_BIT`).
const X32_BIT: u32 = 0x4000_0000;

/// How one call, or a range of calls, is answered: the first clause whose conditions all hold, else the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallAnswer {
    /// Conditions and the value returned when all hold.
    pub(super) clauses: Vec<(Vec<Cond>, u32)>,
    /// Returned when no clause matches.
    pub(super) otherwise: u32,
}

/// A range of numbers, from `start` to the start of the next one.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) start: u32,
    pub(super) answer: CallAnswer,
}

/// The values returned outside the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    /// For calls of another architecture and x32.
    pub(super) foreign: u32,
    /// For call number -1, which debuggers use for "no call".
    pub(super) no_call: u32,
}

/// Emits the program. `segments` are sorted, start at 0 and differ from their neighbours.
pub(super) fn emit(segments: &[Segment], fixed: Fixed, arch: Arch) -> Result<Vec<Insn>, SeccompError> {
    let mut emitter = Emitter::default();
    let mut tree = emitter.tree(segments);
    if arch == Arch::X86_64 {
        let x32 = emitter.branch(JEQ, u32::MAX, JumpTarget::Return(fixed.no_call), JumpTarget::Return(fixed.foreign));
        tree = emitter.branch(JGE, X32_BIT, x32, tree);
    }
    let label = emitter.adjacent(tree);
    debug_assert_eq!(label + 1, emitter.reversed.len());
    let number = emitter.load(0);
    let start = emitter.branch(JEQ, arch.audit(), number, JumpTarget::Return(fixed.foreign));
    emitter.adjacent(start);
    emitter.load(4);
    if emitter.reversed.len() > MAX_INSNS {
        return Err(SeccompError::TooLong { instructions: emitter.reversed.len() });
    }
    emitter.reversed.reverse();
    Ok(emitter.reversed)
}

/// Position of an instruction in the reversed program.
type Label = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JumpTarget {
    Return(u32),
    At(Label),
}

#[derive(Default)]
struct Emitter<'a> {
    reversed: Vec<Insn>,
    returns: Vec<(u32, Label)>,
    blocks: Vec<(&'a CallAnswer, JumpTarget)>,
}

impl<'a> Emitter<'a> {
    fn tree(&mut self, segments: &'a [Segment]) -> JumpTarget {
        match segments {
            [] => unreachable!("the search tree has at least one range"),
            [one] => self.block(&one.answer),
            _ => {
                let (left, right) = segments.split_at(segments.len() / 2);
                let above = self.tree(right);
                let below = self.tree(left);
                self.branch(JGE, right[0].start, above, below)
            }
        }
    }

    fn block(&mut self, answer: &'a CallAnswer) -> JumpTarget {
        if let Some(&(_, target)) = self.blocks.iter().find(|(known, _)| *known == answer) {
            return target;
        }
        let mut next = JumpTarget::Return(answer.otherwise);
        for (conds, value) in answer.clauses.iter().rev() {
            let mut met = JumpTarget::Return(*value);
            for cond in conds.iter().rev() {
                met = self.condition(cond, met, next);
            }
            next = met;
        }
        self.blocks.push((answer, next));
        next
    }

    fn condition(&mut self, cond: &Cond, yes: JumpTarget, no: JumpTarget) -> JumpTarget {
        let low_at = 16 + 8 * u32::from(cond.arg);
        let (value, mask) = (cond.value, cond.mask);
        let (low, high) = (value as u32, (value >> 32) as u32);
        let (low_mask, high_mask) = (mask as u32, (mask >> 32) as u32);
        match cond.width {
            Width::Bits32 => self.compare(low_at, low_mask, cond.op, low, yes, no),
            Width::Bits64 => match cond.op {
                ArgComparison::Eq => {
                    let low_half = self.compare(low_at, low_mask, ArgComparison::Eq, low, yes, no);
                    self.compare(low_at + 4, high_mask, ArgComparison::Eq, high, low_half, no)
                }
                ArgComparison::Ne => {
                    let low_half = self.compare(low_at, low_mask, ArgComparison::Ne, low, yes, no);
                    self.compare(low_at + 4, high_mask, ArgComparison::Ne, high, yes, low_half)
                }
                // The high half decides unless it is equal.
                op => {
                    let strict = match op {
                        ArgComparison::Ge | ArgComparison::Gt => ArgComparison::Gt,
                        _ => ArgComparison::Lt,
                    };
                    let low_half = self.compare(low_at, low_mask, op, low, yes, no);
                    let equal = self.compare(low_at + 4, high_mask, ArgComparison::Eq, high, low_half, no);
                    self.compare(low_at + 4, high_mask, strict, high, yes, equal)
                }
            },
        }
    }

    /// Loads a word, masks it and compares it.
    fn compare(
        &mut self,
        offset: u32,
        mask: u32,
        op: ArgComparison,
        value: u32,
        yes: JumpTarget,
        no: JumpTarget,
    ) -> JumpTarget {
        let (code, k, taken, passed) = match op {
            ArgComparison::Ne if value == 0 && mask != u32::MAX => (JSET, mask, yes, no),
            ArgComparison::Eq if value == 0 && mask != u32::MAX => (JSET, mask, no, yes),
            ArgComparison::Eq => (JEQ, value, yes, no),
            ArgComparison::Ne => (JEQ, value, no, yes),
            ArgComparison::Gt => (JGT, value, yes, no),
            ArgComparison::Le => (JGT, value, no, yes),
            ArgComparison::Ge => (JGE, value, yes, no),
            ArgComparison::Lt => (JGE, value, no, yes),
        };
        if mask == 0 {
            return if op.holds(0, u64::from(value)) { yes } else { no };
        }
        if yes == no {
            return yes;
        }
        self.branch(code, k, taken, passed);
        if code != JSET && mask != u32::MAX {
            self.push(AND, 0, 0, mask);
        }
        self.load(offset)
    }

    /// A conditional jump. Whatever it needs on the way stands behind it and is only reached by jumps.
    fn branch(&mut self, code: u16, k: u32, yes: JumpTarget, no: JumpTarget) -> JumpTarget {
        if yes == no {
            return yes;
        }
        // One more instruction may come between the first target and the jump.
        let yes = self.reach(yes, 1);
        let no = self.reach(no, 0);
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.push(code, jt, jf, k)
    }

    fn load(&mut self, offset: u32) -> JumpTarget {
        self.push(LD_ABS, 0, 0, offset)
    }

    /// An instruction for `target` that a conditional jump emitted `slack` instructions from now can reach.
    fn reach(&mut self, target: JumpTarget, slack: usize) -> Label {
        let known = match target {
            JumpTarget::At(label) => Some(label),
            JumpTarget::Return(value) => {
                self.returns.iter().rev().find(|(known, _)| *known == value).map(|&(_, label)| label)
            }
        };
        if let Some(label) = known
            && self.distance(label) + slack <= usize::from(u8::MAX)
        {
            return label;
        }
        let label = self.reversed.len();
        match target {
            JumpTarget::At(to) => {
                let over = self.distance(to) as u32;
                self.push(JA, 0, 0, over);
            }
            JumpTarget::Return(value) => {
                self.push(RET, 0, 0, value);
                self.returns.push((value, label));
            }
        }
        label
    }

    /// The label of `target` as the instruction emitted last, so that the next one falls through to it.
    fn adjacent(&mut self, target: JumpTarget) -> Label {
        let label = self.reach(target, 0);
        if label + 1 == self.reversed.len() {
            return label;
        }
        let over = self.distance(label) as u32;
        self.push(JA, 0, 0, over);
        self.reversed.len() - 1
    }

    /// Instructions between the one emitted next and `label`.
    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - label - 1
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> JumpTarget {
        self.reversed.push(Insn { code, jt, jf, k });
        JumpTarget::At(self.reversed.len() - 1)
    }
}

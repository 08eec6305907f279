//! A bounded list of entries in which no class of entries can displace another.
//!
//! An entry that equals an earlier one is folded into it. Each class has room for a few entries of its own; all classes
//! share the rest, first come, first served. An entry without room is folded into the aggregate entry of its class,
//! which has a count and no details: a flood in one class costs the others nothing, and every entry is counted.
//!
//! Pure. It is bounded because the number of classes is: a class consists of enums and lines of the policy, never of
//! anything that a program chooses.

use std::collections::HashMap;
use std::hash::Hash;

/// An entry of a ledger.
pub trait LedgerEntry: Sized {
    /// Entries of a class have room of their own.
    type Class: Eq + Hash;
    /// What makes two entries equal.
    type Key: Eq + Hash;

    /// Its class.
    fn class(&self) -> Self::Class;
    /// Its key.
    fn key(&self) -> Self::Key;
    /// How often it happened.
    fn count(&self) -> u64;
    /// Counts an equal entry, or a further one of an aggregate.
    fn fold(&mut self, again: Self);
    /// Itself without what distinguishes it from others of its class.
    fn aggregate(self) -> Self;
    /// Whether it is an aggregate already.
    fn is_aggregate(&self) -> bool;
}

/// How many entries there may be.
#[derive(Debug, Clone, Copy)]
pub struct LedgerCapacity {
    /// For each class.
    pub own: usize,
    /// Shared by all classes.
    pub shared: usize,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerPlacement {
    /// It was added, at this index.
    New(usize),
    /// It was counted on the entry at this index.
    Folded(usize),
    /// It was counted on its class's aggregate, at this index.
    Aggregated(usize),
}

#[derive(Debug, Default)]
struct ClassCount {
    entries: usize,
    aggregate: Option<usize>,
}

/// The bounded list.
#[derive(Debug)]
pub struct Ledger<T: LedgerEntry> {
    room: LedgerCapacity,
    entries: Vec<T>,
    index: HashMap<T::Key, usize>,
    classes: HashMap<T::Class, ClassCount>,
    shared: usize,
    aggregated: u64,
}

impl<T: LedgerEntry> Ledger<T> {
    /// An empty one.
    pub fn new(room: LedgerCapacity) -> Ledger<T> {
        Ledger { room, entries: Vec::new(), index: HashMap::new(), classes: HashMap::new(), shared: 0, aggregated: 0 }
    }

    /// Adds one, or counts it.
    pub fn add(&mut self, entry: T) -> LedgerPlacement {
        let count = entry.count();
        let class = self.classes.entry(entry.class()).or_default();
        if !entry.is_aggregate() {
            let key = entry.key();
            if let Some(&at) = self.index.get(&key) {
                self.entries[at].fold(entry);
                return LedgerPlacement::Folded(at);
            }
            let owned = class.entries < self.room.own;
            if owned || self.shared < self.room.shared {
                class.entries += 1;
                self.shared += usize::from(!owned);
                self.index.insert(key, self.entries.len());
                self.entries.push(entry);
                return LedgerPlacement::New(self.entries.len() - 1);
            }
        }
        self.aggregated += count;
        let at = match class.aggregate {
            Some(at) => {
                self.entries[at].fold(entry);
                at
            }
            None => {
                class.aggregate = Some(self.entries.len());
                self.entries.push(entry.aggregate());
                self.entries.len() - 1
            }
        };
        LedgerPlacement::Aggregated(at)
    }

    /// All entries, in the order in which they were added.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// All entries, to be changed except for their keys.
    #[cfg(feature = "gateway")]
    pub(crate) fn entries_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }

    /// The sum of the counts of aggregates.
    pub fn aggregated(&self) -> u64 {
        self.aggregated
    }

    /// Removes and returns all entries.
    pub fn take(&mut self) -> Vec<T> {
        let room = self.room;
        std::mem::replace(self, Ledger::new(room)).entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Seen {
        class: u8,
        what: Option<u16>,
        count: u64,
    }

    impl LedgerEntry for Seen {
        type Class = u8;
        type Key = (u8, Option<u16>);
        fn class(&self) -> u8 {
            self.class
        }
        fn key(&self) -> Self::Key {
            (self.class, self.what)
        }
        fn count(&self) -> u64 {
            self.count
        }
        fn fold(&mut self, again: Seen) {
            self.count += again.count;
        }
        fn aggregate(self) -> Seen {
            Seen { what: None, ..self }
        }
        fn is_aggregate(&self) -> bool {
            self.what.is_none()
        }
    }

    const ROOM: LedgerCapacity = LedgerCapacity { own: 4, shared: 20 };

    fn seen(class: u8, what: u16) -> Seen {
        Seen { class, what: Some(what), count: 1 }
    }

    #[test]
    fn a_flood_in_one_class_does_not_displace_another() {
        let mut ledger = Ledger::new(ROOM);
        for what in 0..10_000 {
            ledger.add(seen(0, what));
        }
        assert_eq!(ledger.entries().len(), ROOM.own + ROOM.shared + 1);
        assert_eq!(ledger.add(seen(1, 7)), LedgerPlacement::New(ROOM.own + ROOM.shared + 1));
        assert_eq!(ledger.add(seen(1, 7)), LedgerPlacement::Folded(ROOM.own + ROOM.shared + 1));
        assert_eq!(ledger.aggregated(), 10_000 - (ROOM.own + ROOM.shared) as u64);
    }

    proptest! {
        #[test]
        fn ledger_is_bounded_and_loses_neither_classes_nor_counts(
            all in prop::collection::vec((0u8..6, prop::option::weighted(0.95, 0u16..200), 1u64..5), 0..2000),
        ) {
            let mut ledger = Ledger::new(ROOM);
            let mut counts = HashMap::<u8, u64>::new();
            for (class, what, count) in all {
                *counts.entry(class).or_default() += count;
                ledger.add(Seen { class, what, count });
            }
            prop_assert!(ledger.entries().len() <= ROOM.shared + 6 * (ROOM.own + 1));
            for (class, count) in counts {
                let counted: u64 = ledger.entries().iter().filter(|e| e.class == class).map(|e| e.count).sum();
                prop_assert_eq!(counted, count);
            }
            let aggregated: u64 = ledger.entries().iter().filter(|e| e.is_aggregate()).map(|e| e.count).sum();
            prop_assert_eq!(aggregated, ledger.aggregated());
        }
    }
}

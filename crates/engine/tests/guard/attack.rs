//! Ways around a guard that were tried, each beside what is allowed on the same victim.

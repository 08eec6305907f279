//! The guard with real subprocesses: what it allows works, and the same thing beyond a rule does not.

mod attack;
mod documents;
mod executing;
mod files;
mod fixture;
mod recording;
mod table;

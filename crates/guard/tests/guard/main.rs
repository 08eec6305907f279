//! The guard through real subprocesses: what it allows does its work, and the same thing beyond a rule does not.

mod attack;
mod documents;
mod executing;
mod files;
mod fixture;
mod recording;
mod table;

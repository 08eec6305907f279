//! Attacks on a sandbox, each with an allowed twin on the same victim, and the harness that judges them.
//!
//! `attack` is the vocabulary of a row, `classes` the rows, `case` the victims of one trial, `launch` starts
//! processes, `judge` decides what a trial showed, `host` is what one invocation of the suite shares, `report` writes
//! the table. The payloads are C (`attacks/`): they must not depend on the code that they attack.

pub mod attack;
pub mod case;
pub mod classes;
pub mod host;
pub mod judge;
pub mod launch;
pub mod proof;
pub mod report;
pub mod run;

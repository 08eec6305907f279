//! The MCP server: one tool, `run`, which runs code in a named environment, and others where the operator offers them. It decides nothing about what is safe: each
//! environment ends in a policy, and the engine holds that.
//!
//! ```text
//! client ─ transport (stdio, http) ─▶ service ─ calls (how many at a time) ─▶ run ─▶ engine
//!                                       │  ▲                                   │
//!                          catalogue ◀──┘  └── answer (text, outcome, files) ◀─┘
//!                              ▲ watch, control: definitions changed
//! ```
//!
//! The runtime is one thread and only ever waits; every run of the engine is on a thread of its own. Standard output
//! belongs to the protocol: what there is to say goes to standard error by `tracing`, and never holds code or output.
#![forbid(unsafe_code)]

mod answer;
mod calls;
mod catalogue;
mod conversations;
mod cut;
mod doorway;
mod early;
mod files;
mod fixtures;
mod http;
mod ids;
mod kept;
mod lines;
mod own;
mod place;
mod record;
mod run;
mod schema;
mod server;
mod service;
mod session;
mod single;
mod stdio;
mod token;
mod transfers;
mod watch;
mod workspace;

pub use server::{ServeError, serve};

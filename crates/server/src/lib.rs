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
mod blobs;
mod calls;
mod conn_limit;
mod early;
mod environment;
mod environments;
mod event_log;
mod files;
mod fixtures;
mod framing;
mod http;
mod http_sessions;
mod json_answers;
mod request_ids;
mod run;
mod schema;
mod server;
mod service;
mod session;
mod session_tools;
mod stdio;
mod token;
mod transfers;
mod truncate;
mod watch;
mod workspace;

pub use server::{ServeError, serve};

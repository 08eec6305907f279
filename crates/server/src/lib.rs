//! The MCP server: the tool `run`, which runs code in a named environment, and further tools that the operator offers. It
//! does not decide what is safe: each environment compiles to a policy, and the engine enforces that policy.
//!
//! ```text
//!  client ─▶ transport ─▶ service ─▶ tools ─▶ execution ─▶ engine
//!            stdio, HTTP     │         │          │
//!                            ▼         ▼          ├─▶ workspace     files in and out of a sandbox
//!                        connection  results      └─▶ environments  policies, prepared sandboxes, reload
//!                        state of    text, data,
//!                        one client  blobs
//! ```
//!
//! Imports follow the arrows, and `server` starts and stops all of it.
//!
//! The async runtime has one thread, which only waits; each run of the engine has a thread of its own. Standard output
//! belongs to the protocol. Logs go to standard error by `tracing` and never contain code or its output.
#![forbid(unsafe_code)]

mod conformance;
mod connection;
mod environments;
mod error;
mod execution;
mod results;
mod server;
mod service;
mod tools;
mod transport;
mod workspace;

pub use error::ServeError;
pub use server::serve;

//! The egress gateway: the one way out of a sandbox's network, and only to where its policy allows.
//!
//! ```text
//! program ─connect─▶ listener inside ─accept─▶ which name or address? ─rules─▶ first bytes ─rules─▶ upstream ─▶ relay
//!    │                                             ▲                             (SNI, Host)        (resolved here,
//!    └─ query ─▶ resolver inside ─ synthetic address ┘                                               checked, pinned)
//! ```
//!
//! A sandbox's network namespace has a loopback interface to which every address is local, and nothing else: whatever a
//! program connects to arrives at listeners that the gateway holds in there, or nowhere. So nothing depends on the
//! program's cooperation, and no byte leaves but through this crate.
//!
//! Decisions (`rules`, `address`, `name`, `hello`, `first`, `dns`, `socks`) are pure; effects (`gateway`, `sandbox`,
//! `upstream`, `relay`, `http`) are at the edge. Never starts a process, reads a policy file or enters a namespace.
#![forbid(unsafe_code)]

mod accept;
pub mod address;
mod attempts;
mod client;
pub mod client_hello;
mod datagrams;
pub mod dns;
pub mod event;
pub mod first_bytes;
mod flow;
pub mod gateway;
pub mod http;
pub mod layout;
pub mod ledger;
pub mod limits;
pub mod name;
pub mod names;
pub mod process;
mod proxies;
pub mod relay;
mod reporter;
pub mod resolve;
mod route;
pub mod rules;
mod sandbox;
mod sandbox_sockets;
pub mod socks;
pub mod upstream;

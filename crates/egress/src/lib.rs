//! The egress gateway: the one way out of a sandbox's network, and only to where its policy allows.
//!
//! ```text
//! program ─connect─▶ listener inside ─accept─▶ which name or address? ─rules─▶ first bytes ─rules─▶ upstream ─▶ relay
//!    │                                             ▲                             (SNI, Host)        (resolved here,
//!    └─ query ─▶ resolver inside ─ synthetic address ┘                                               checked, pinned)
//! ```
//!
//! A sandbox's network namespace has a loopback interface to which every address is local, and nothing else: whatever a
//! program connects to arrives at a listener of the gateway in that namespace, or nowhere (transparent proxying). So
//! the program need not cooperate, and no byte leaves but through this crate.
//!
//! The folders, each of which imports only from those below it:
//!
//! ```text
//! gateway    the threads of this process, and the sandboxes attached to them
//! serve      one sandbox's sockets: connections, queries and refused packets as they arrive
//! sandbox    what the tasks of one sandbox share: settings, limits in use, their end
//! http       HTTP/1.1 in the clear, request by request; the HTTP proxy; the API that is passed through
//! connect    upstream: resolve, check, connect, relay bytes
//! sockets    the descriptors that the sandbox's init sends; which process a socket belongs to
//! limits     connections, bytes and bandwidth that one sandbox may use
//! report     events, and how they are counted and reported
//! decide     pure decisions: rules, addresses, names, and the parsers of TLS, DNS, SOCKS and first bytes
//! ```
//!
//! Without the feature `gateway` there are the decisions, events and sockets alone, for a program whose sandboxes have no
//! network of their own: it links no HTTP, no resolver and no runtime for asynchronous code.
//!
//! Never starts a process, reads a policy file or enters a namespace.
#![forbid(unsafe_code)]

#[cfg(feature = "gateway")]
mod connect;
mod decide;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(not(feature = "gateway"))]
#[path = "no_gateway.rs"]
pub mod gateway;
#[cfg(feature = "gateway")]
pub mod http;
#[cfg_attr(
    not(feature = "gateway"),
    allow(dead_code, reason = "the gateway counts; reading who owns a socket is limited too")
)]
mod limits;
mod report;
#[cfg(feature = "gateway")]
mod sandbox;
#[cfg(feature = "gateway")]
mod serve;
#[cfg(feature = "gateway")]
mod settings;
mod sockets;
mod traffic;

#[cfg(feature = "gateway")]
pub use connect::host_resolver;
pub use decide::{
    address, client_hello, dns, first_bytes, first_line, greeting_watch, host_name, refusal, rules,
    socket_layout as layout, socks, synthetic_addresses as names,
};
pub use report::{event, ledger};
pub use sockets::socket_owner;

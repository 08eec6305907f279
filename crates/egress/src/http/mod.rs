//! HTTP/1.1 in the clear: requests looked into one by one, the HTTP proxy, and the API that is passed through.
//!
//! ```text
//! client ─bytes─▶ guard ─one reading only─▶ hyper's server ─request─▶ captured, proxy, api ─▶ hyper's client ─▶ upstream
//!                 (frame, head)             (serve)                  (request, rules)         (forward)
//! ```
//!
//! Two readers look at each request: the guard at its bytes, which refuses every shape that programs read in different
//! ways, and hyper at what passes. What leaves is written anew from what was understood: no byte of a head is passed on
//! as it came. `door` is what this module needs of the gateway, `captured` serves a connection that a program made to
//! some host's port, `proxy` the HTTP proxy and `api` the API. Never resolves a name, opens a socket or reads a policy.

mod api;
pub mod authority;
mod captured;
mod door;
mod forward;
pub mod frame;
mod guard;
pub mod head;
mod proxy;
mod refuse;
mod request;
mod serve;
mod websocket;

pub use api::{Api, ApiError, Connect, api};
pub use captured::captured;
pub use door::{Dial, Dialed, Done, Door, Io, Replay, Seat, Stream};
pub use proxy::proxy;

//! HTTP/1.1 in the clear: requests inspected one by one, the HTTP proxy, and the API that is passed through.
//!
//! ```text
//! client ─bytes─▶ inspect ─unambiguous bytes─▶ hyper's server ─request─▶ service ─▶ hyper's client ─▶ upstream
//!                 (framing, request_head)      (connection)              (captured,  (upstream_client)
//!                                                                        proxy, api)
//! ```
//!
//! Two parsers read each request: `inspect` its bytes, which refuses every form that programs read in different ways,
//! and hyper what passes. What goes to upstream is written anew from what was understood: no byte of a head is passed
//! on as it came. `interface` is what this module needs of the gateway, `captured` serves a connection that a program
//! made to some host's port, `proxy` the HTTP proxy and `api` the API. Never resolves a name, opens a socket or reads a
//! policy.

mod api;
pub mod authority;
mod captured;
mod connection;
pub mod framing;
mod inspect;
mod interface;
mod proxy;
mod refusal_response;
pub mod request_head;
mod request_target;
mod upstream_client;
mod websocket;

pub use api::{Api, ApiError, Connect, api};
pub use captured::captured;
pub use interface::{
    BoxedStream, BoxedTask, ByteStream, CapturedHttp, Dial, Dialed, GatewayInterface, Replay, Tunnel, TunnelDial,
};
pub use proxy::proxy;

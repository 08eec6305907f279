//! HTTP through the gateway, with raw bytes on both sides: what a client sends, what upstream receives, responses and
//! events. Everything in memory: no socket, no privilege.

mod ambiguous_requests;
mod api;
mod arbitrary_bytes;
mod captured;
mod proxy;
#[path = "../common/requests.rs"]
mod requests;
mod streaming;
mod support;

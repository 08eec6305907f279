//! HTTP through the gateway, with raw bytes on both sides: what a client sends, what upstream gets, what is answered and
//! told. Everything in memory: no socket, no privilege.

mod any;
mod api;
mod captured;
mod flow;
mod proxy;
#[path = "../common/requests.rs"]
mod requests;
mod shapes;
mod support;

//! How messages of the protocol reach the server: over standard input and output from one client, or over HTTP from many.
//! Transports frame, bound, authenticate and correlate messages; what a message asks for is the service's.

pub(crate) mod error;
pub(crate) mod http;
pub(crate) mod stdio;

mod conn_limit;
mod event_log;
mod framing;
mod http_sessions;
mod json_response;
mod request_body;
mod request_ids;
mod token;

//! What the gateway decides, as pure functions of a policy and of bytes: nothing here opens a socket, waits or keeps
//! time.

pub mod address;
pub mod client_hello;
pub mod dns;
pub mod first_bytes;
pub mod first_line;
pub mod greeting_watch;
pub mod host_name;
#[cfg(feature = "gateway")]
pub(crate) mod protocol_check;
pub mod refusal;
pub mod rules;
pub mod socket_layout;
pub mod socks;
pub mod synthetic_addresses;

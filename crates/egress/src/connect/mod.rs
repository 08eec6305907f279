//! The upstream side: host names resolved as the host resolves them, addresses checked and connected to, and bytes
//! relayed. Knows nothing of sandboxes or of protocols inside the connection.

pub mod base64;
pub mod dialer;
pub mod host_resolver;
pub mod poll_io;
pub mod relay;
pub mod route_lookup;

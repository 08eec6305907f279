//! The upstream side: host names resolved as the host resolves them, addresses checked and connected to, and bytes
//! relayed. Knows nothing of sandboxes or of protocols inside the connection.

pub(crate) mod base64;
pub(crate) mod dialer;
pub mod host_resolver;
pub(crate) mod poll_io;
pub(crate) mod relay;
pub(crate) mod route_lookup;

//! Which process of a sandbox holds a socket.

use std::net::SocketAddr;

/// The process that made a connection from `peer` to `destination`, as this process sees it. Nothing when it is not found at
/// once.
pub fn of(init: Option<u32>, peer: SocketAddr, destination: SocketAddr) -> Option<u32> {
    let _nothing = (init, peer, destination);
    None
}

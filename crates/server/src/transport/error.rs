//! Why a transport cannot start or does not go on.

use std::net::SocketAddr;

use super::token::TokenError;

/// Why a transport cannot start or does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The listen address is invalid.
    #[error("{0} is no address to listen on\nhint: --http 127.0.0.1:8800")]
    Address(String),
    /// The listen address is reachable from other hosts, and the token was newly made.
    #[error(
        "{0} can be reached by others, and there is no token that they could have been given\nhint: --token-file FILE, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The listen address is not loopback, and no `Host` header would be accepted.
    #[error("{0} is no loopback address, and no name is allowed by which callers reach it\nhint: --allow-host NAME")]
    Nameless(SocketAddr),
    /// The token cannot be read or made.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Listening on the address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The client's first message is not of the protocol.
    #[error("the client does not begin as the protocol does: {0}")]
    Client(String),
}

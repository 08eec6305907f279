//! The transport of standard input and output: one client, who started this process.

use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt as _};
use tokio_util::sync::CancellationToken;

use crate::server::ServeError;
use crate::service::{LONGEST_CODE, Service};

/// Longest line, bytes: much more than the longest code, so that code which is too long is refused by its call's own
/// answer. What is longer still is dropped unread.
const LONGEST_LINE: usize = LONGEST_CODE * 16;

/// Serves until the client closes standard input, or until `stop`.
pub async fn serve(service: Service, stop: CancellationToken) -> Result<(), ServeError> {
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(tokio::io::stdin(), tokio::io::stdout())
        .with_max_line_length(LONGEST_LINE);
    match service.serve_with_ct(transport, stop.clone()).await {
        Ok(running) => {
            if let Err(error) = running.waiting().await {
                tracing::error!("serving ended by a mistake of the server's: {error}");
            }
            Ok(())
        }
        // A client that goes without having said anything has done nothing wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(rmcp::service::ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(ServeError::Client(error.to_string())),
    }
}

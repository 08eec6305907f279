//! The transport of standard input and output: one client, who started this process.

use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt as _};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use crate::ids::Apart;
use crate::server::ServeError;
use crate::service::{LONGEST_CODE, Service};

/// Longest line, bytes: much more than the longest code, so that code which is too long is refused by its call's own
/// answer. What is longer still is dropped unread.
const LONGEST_LINE: usize = LONGEST_CODE * 16;

/// Serves until the client closes standard input, or until `stop`.
pub async fn serve(service: Service, stop: CancellationToken) -> Result<(), ServeError> {
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(tokio::io::stdin(), tokio::io::stdout())
        .with_max_line_length(LONGEST_LINE);
    if let Err(error) = end_when_nobody_reads(stop.clone()) {
        tracing::warn!("a client that goes is noticed late: {error}");
    }
    match service.serve_with_ct(Apart::new(transport), stop.clone()).await {
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

/// Says that it is over when the client's end of standard output is closed: it has gone, or hears of nothing any more. Its
/// end of standard input alone does not tell; who only writes no more waits for answers.
fn end_when_nobody_reads(stop: CancellationToken) -> std::io::Result<()> {
    let waits = move || {
        loop {
            // No event is asked for: only what is told in any case ends the wait.
            let output = std::io::stdout();
            match poll(&mut [PollFd::new(&output, PollFlags::empty())], None) {
                Ok(_) => return stop.cancel(),
                Err(Errno::INTR) => {}
                Err(errno) => return tracing::warn!("a client that goes is noticed late: {errno}"),
            }
        }
    };
    std::thread::Builder::new().name("cofferdam-reader".into()).stack_size(128 << 10).spawn(waits).map(drop)
}

//! The transport over standard input and output: one client, which started this process.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::error::TransportError;
use super::framing::LineTransport;
use super::request_ids::UniqueIds;
use crate::execution::call::LONGEST_CODE;
use crate::service::ConnectionService;

/// Longest line, bytes: the longest code with six bytes for each, as in `\u001b`, and the message around it. Up to this
/// length, code that is too long is refused by the result of its own call.
const LONGEST_LINE: usize = LONGEST_CODE * 6 + (1 << 20);

/// How often the parent process is looked up once standard input is closed.
const PARENT_POLL: Duration = Duration::from_millis(50);

/// Serves until the client closes standard input, or until `shutdown`.
pub(crate) async fn serve(service: ConnectionService, shutdown: CancellationToken) -> Result<(), TransportError> {
    let transport = LineTransport::new(tokio::io::stdin(), tokio::io::stdout(), LONGEST_LINE);
    tokio::spawn(shut_down_when_orphaned(transport.eof(), getppid(), shutdown.clone()));
    if let Err(error) = shut_down_on_stdout_hangup(shutdown.clone()) {
        tracing::warn!("a client that goes is noticed late: {error}");
    }
    match service.serve_with_ct(UniqueIds::new(transport), shutdown.clone()).await {
        Ok(running) => {
            if let Err(error) = running.waiting().await {
                tracing::error!("serving ended by a mistake of the server's: {error}");
            }
            Ok(())
        }
        // A client may close the connection without having sent anything.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(rmcp::service::ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(TransportError::Client(error.to_string())),
    }
}

/// Cancels `shutdown` once standard input is closed and the parent process has gone: no client waits for the last answers.
async fn shut_down_when_orphaned(eof: Arc<Notify>, parent: Option<Pid>, shutdown: CancellationToken) {
    eof.notified().await;
    while getppid() == parent {
        tokio::time::sleep(PARENT_POLL).await;
    }
    shutdown.cancel();
}

/// Cancels `shutdown` when the client's end of standard output is closed: the client has gone, or reads no more. The end of
/// standard input alone does not mean that, since the client may still wait for answers.
fn shut_down_on_stdout_hangup(shutdown: CancellationToken) -> std::io::Result<()> {
    let wait = move || {
        loop {
            // No event is requested: POLLERR and POLLHUP are always reported.
            let output = std::io::stdout();
            match poll(&mut [PollFd::new(&output, PollFlags::empty())], None) {
                Ok(_) => return shutdown.cancel(),
                Err(Errno::INTR) => {}
                Err(errno) => return tracing::warn!("a client that goes is noticed late: {errno}"),
            }
        }
    };
    std::thread::Builder::new().name("cofferdam-reader".into()).stack_size(128 << 10).spawn(wait).map(drop)
}

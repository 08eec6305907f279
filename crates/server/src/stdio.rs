//! The transport of standard input and output: one client, who started this process.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getppid};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::framing::Lines;
use crate::request_ids::Apart;
use crate::server::ServeError;
use crate::service::{LONGEST_CODE, Service};

/// Longest line, bytes: code of the largest size of which every character is escaped as six, and what stands around it. Code
/// that is too long is refused by its call's own answer up to here.
const LONGEST_LINE: usize = LONGEST_CODE * 6 + (1 << 20);

/// How often it is looked whether the parent is there, when nobody writes any more.
const LOOK: Duration = Duration::from_millis(50);

/// Serves until the client closes standard input, or until `stop`.
pub async fn serve(service: Service, stop: CancellationToken) -> Result<(), ServeError> {
    let transport = Lines::new(tokio::io::stdin(), tokio::io::stdout(), LONGEST_LINE);
    tokio::spawn(end_without_a_parent(transport.ended(), getppid(), stop.clone()));
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

/// Says that it is over when nobody writes and whoever started this process has gone: what was written last is no question of
/// somebody who waits for the answer.
async fn end_without_a_parent(ended: Arc<Notify>, parent: Option<Pid>, stop: CancellationToken) {
    ended.notified().await;
    while getppid() == parent {
        tokio::time::sleep(LOOK).await;
    }
    stop.cancel();
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

//! Reads and writes of a shared TCP stream in the form that `AsyncRead` and `AsyncWrite` need.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// Bytes that a task reads from one stream before the others of its thread run. tokio counts operations only, and what
/// is done with the bytes of one takes long if they are many small messages.
const TURN_BYTES: usize = 64 * 1024;

/// How many bytes were read without a wait: a peer that sends for ever may not keep a thread.
#[derive(Debug, Default)]
pub(crate) struct ReadBudget {
    bytes: usize,
}

impl ReadBudget {
    /// Reads as [`poll_read`] does. Once the turn is over it is pending one time, and the task is woken again.
    pub(crate) fn poll_read(
        &mut self,
        stream: &TcpStream,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let read = poll_read(stream, context, buffer, most.min(TURN_BYTES.saturating_sub(self.bytes).max(1)));
        match &read {
            Poll::Ready(Ok(count)) => self.bytes += count,
            _ => self.bytes = 0,
        }
        read
    }

    /// Pending if the turn is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.bytes < TURN_BYTES {
            return Poll::Ready(());
        }
        self.bytes = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Reads at most `most` bytes, and returns how many they were: 0 at the end of the stream.
fn poll_read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        let room = most.min(buffer.remaining());
        match stream.try_read(buffer.initialize_unfilled_to(room)) {
            Ok(n) => {
                buffer.advance(n);
                return Poll::Ready(Ok(n));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Writes some of `bytes`, and returns how many.
pub(crate) fn poll_write(stream: &TcpStream, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_write(bytes) {
            Ok(n) => return Poll::Ready(Ok(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Ends the sending direction.
pub(crate) fn shutdown(stream: &TcpStream) -> Poll<io::Result<()>> {
    Poll::Ready(Ok(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?))
}

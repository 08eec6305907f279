//! Reads and writes of a shared TCP stream in the form that `AsyncRead` and `AsyncWrite` need.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// Reads at most `most` bytes, and returns how many they were: 0 at the end of the stream.
pub(crate) fn poll_read(
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

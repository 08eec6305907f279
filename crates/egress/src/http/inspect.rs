//! A wrapper around a client's stream, from which only strictly framed requests can be read. Records what it refuses,
//! and responds to nothing.
//!
//! In place of a refused head a substitute is read: so the requests before it are answered first, and the server of the
//! connection learns by the request's number that it is to be refused, and why.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::framing::{FramingStep, RequestFraming};
use crate::http::interface::BoxedStream;
use crate::http::request_head::HeadFault;

/// Time limit of a head, from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Time limit between two requests.
const IDLE: Duration = Duration::from_secs(75);
/// Time limit between two parts of a request's body.
const BODY: Duration = Duration::from_secs(120);
/// A client that has shut down its sending side while requests are open counts as gone after this time without a write:
/// one that has died looks the same as one that still reads.
const GONE: Duration = Duration::from_secs(60);
/// After a refusal, what the client still sends is read for this time, so that no reset destroys the response…
const LINGER: Duration = Duration::from_millis(500);
/// …and at most so much of it.
const LINGER_BYTES: usize = 2 * 1024 * 1024;

/// The substitute for a refused head.
const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\nhost: refused.invalid\r\nconnection: close\r\n\r\n";

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Idle,
    Head,
    Body,
}

#[derive(Debug, Default)]
struct InspectionState {
    framing: RequestFraming,
    /// Number of the request that is a substitute.
    refused: Option<u64>,
    /// Requests that were answered to the end.
    answered: u64,
    /// The task that waits for [`InspectionHandle::resume`] or [`InspectionHandle::answered`].
    waker: Option<Waker>,
    linger: bool,
    /// `broken` has returned the fault.
    reported: bool,
}

/// The stream that the server of the connection reads and writes.
pub(crate) struct InspectedStream {
    io: BoxedStream,
    shared: Arc<Mutex<InspectionState>>,
    /// Bytes that may pass.
    out: BytesMut,
    /// Bytes that were read, and not inspected yet.
    rest: BytesMut,
    wait: Option<(Wait, Pin<Box<Sleep>>)>,
    /// The client has shut down its sending side.
    ended: Option<Pin<Box<Sleep>>>,
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

/// The state of the inspection, for the service that responds to the requests.
#[derive(Clone)]
pub(crate) struct InspectionHandle(Arc<Mutex<InspectionState>>);

fn lock(shared: &Mutex<InspectionState>) -> MutexGuard<'_, InspectionState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InspectionHandle {
    /// Why the request of this number, from zero, is to be refused, if it is.
    pub(crate) fn refused(&self, number: u64) -> Option<HeadFault> {
        let shared = lock(&self.0);
        shared.refused.filter(|refused| *refused == number).and_then(|_| shared.framing.faulty())
    }

    /// The fault in the body of a request; returned once.
    pub(crate) fn broken(&self) -> Option<HeadFault> {
        let mut shared = lock(&self.0);
        let fault = shared.framing.faulty().filter(|_| shared.refused.is_none() && !shared.reported)?;
        shared.reported = true;
        Some(fault)
    }

    /// A request for an upgrade or a tunnel was not granted.
    pub(crate) fn resume(&self) {
        let mut shared = lock(&self.0);
        shared.framing.resume();
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }

    /// A response has ended, or was dropped.
    pub(crate) fn answered(&self) {
        let mut shared = lock(&self.0);
        shared.answered += 1;
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }

    /// The connection ends with a response that the client should receive, whatever it still sends.
    pub(crate) fn linger(&self) {
        lock(&self.0).linger = true;
    }
}

impl InspectedStream {
    /// Wraps a stream.
    pub(crate) fn new(io: BoxedStream) -> (InspectedStream, InspectionHandle) {
        let shared = Arc::new(Mutex::new(InspectionState::default()));
        let watch = InspectionHandle(Arc::clone(&shared));
        (
            InspectedStream {
                io,
                shared,
                out: BytesMut::new(),
                rest: BytesMut::new(),
                wait: None,
                ended: None,
                lingering: None,
            },
            watch,
        )
    }

    /// The stream itself, and the bytes that were read from it and not passed.
    pub(crate) fn into_inner(self) -> (BoxedStream, Bytes) {
        let mut first = self.out;
        first.extend_from_slice(&self.rest);
        (self.io, first.freeze())
    }

    /// Inspects bytes that were read. Returns how many of them pass in place; the others went to `out` and `rest`.
    fn inspect(&mut self, mut bytes: &[u8]) -> usize {
        let mut direct = 0;
        let mut in_place = true;
        let mut shared = lock(&self.shared);
        while !bytes.is_empty() {
            match shared.framing.step(bytes) {
                FramingStep::Pass(count) if in_place => {
                    direct += count;
                    bytes = &bytes[count..];
                }
                FramingStep::Pass(count) => {
                    self.out.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                }
                FramingStep::Held(count) => {
                    in_place = false;
                    bytes = &bytes[count..];
                    if let Some(held) = shared.framing.take() {
                        self.out.extend_from_slice(&held);
                    }
                }
                FramingStep::Wait => {
                    self.rest.extend_from_slice(bytes);
                    break;
                }
                FramingStep::Fault(_) => {
                    drop(shared);
                    self.refuse();
                    break;
                }
            }
        }
        direct
    }

    /// After a fault: a substitute for a head, the end of the stream for a body.
    fn refuse(&mut self) {
        let mut shared = lock(&self.shared);
        shared.linger = true;
        if shared.framing.was_in_head() && shared.refused.is_none() {
            shared.refused = Some(shared.framing.heads());
            self.out.extend_from_slice(SUBSTITUTE);
        }
    }

    /// Ready when the time limit for what the connection waits for is over.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<Wait> {
        let kind = {
            let mut shared = lock(&self.shared);
            if shared.framing.in_head() {
                Wait::Head
            } else if shared.framing.is_incomplete() {
                Wait::Body
            } else if shared.answered < shared.framing.heads() {
                // The client waits for upstream, and need not send anything.
                shared.waker = Some(context.waker().clone());
                self.wait = None;
                return Poll::Pending;
            } else {
                Wait::Idle
            }
        };
        let time = match kind {
            Wait::Idle => IDLE,
            Wait::Head => HEAD,
            Wait::Body => BODY,
        };
        match &mut self.wait {
            Some((waits, sleep)) if *waits == kind => sleep.as_mut().poll(context).map(|()| kind),
            wait => {
                let (_, sleep) = wait.insert((kind, Box::pin(sleep_until(Instant::now() + time))));
                sleep.as_mut().poll(context).map(|()| kind)
            }
        }
    }

    /// Something is written: a client that is gone will not accept it for long.
    fn reset_gone_timer(&mut self) {
        if let Some(gone) = &mut self.ended {
            gone.as_mut().reset(Instant::now() + GONE);
        }
    }

    /// Something was read: time limits begin anew, except that of a head.
    fn progress(&mut self) {
        if !(matches!(self.wait, Some((Wait::Head, _))) && lock(&self.shared).framing.in_head()) {
            self.wait = None;
        }
    }
}

impl AsyncRead for InspectedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.out.is_empty() {
                let count = this.out.len().min(buffer.remaining());
                buffer.put_slice(&this.out[..count]);
                this.out.advance(count);
                if this.out.is_empty() {
                    this.out = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            {
                let mut shared = lock(&this.shared);
                if shared.framing.faulty().is_some() {
                    // Not the end yet if a response is to be sent: at the end of the stream it would be dropped.
                    if shared.refused.is_some_and(|refused| shared.answered <= refused) {
                        shared.waker = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                    return Poll::Ready(Ok(()));
                }
                if shared.framing.is_upgrading() {
                    shared.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                if let Some(gone) = &mut this.ended {
                    // The server of the connection would drop the open requests.
                    if shared.answered >= shared.framing.heads() {
                        return Poll::Ready(Ok(()));
                    }
                    shared.waker = Some(context.waker().clone());
                    return gone.as_mut().poll(context).map(Ok);
                }
            }
            if !this.rest.is_empty() {
                let bytes = std::mem::take(&mut this.rest);
                let direct = this.inspect(&bytes);
                // Bytes of a body precede whatever `inspect` found after them.
                let mut out = BytesMut::from(&bytes[..direct]);
                out.extend_from_slice(&this.out);
                this.out = out;
                continue;
            }
            let before = buffer.filled().len();
            match Pin::new(&mut this.io).poll_read(context, buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() == before => {
                    if !lock(&this.shared).framing.is_incomplete() {
                        this.ended = Some(Box::pin(sleep_until(Instant::now() + GONE)));
                        continue;
                    }
                    lock(&this.shared).framing.fault(HeadFault::CutOff);
                    this.refuse();
                }
                Poll::Ready(Ok(())) => {
                    let direct = this.inspect(&buffer.filled()[before..]);
                    this.progress();
                    buffer.set_filled(before + direct);
                    if direct > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(Err(error)) => {
                    let mut shared = lock(&this.shared);
                    if shared.framing.is_incomplete() {
                        shared.framing.fault(HeadFault::CutOff);
                    }
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => match ready!(this.poll_time(context)) {
                    Wait::Idle => return Poll::Ready(Ok(())),
                    Wait::Head | Wait::Body => {
                        lock(&this.shared).framing.fault(HeadFault::TimedOut);
                        this.refuse();
                    }
                },
            }
        }
    }
}

impl AsyncWrite for InspectedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.reset_gone_timer();
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reset_gone_timer();
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
            if !lock(&this.shared).linger {
                return Poll::Ready(Ok(()));
            }
        }
        let (sleep, left) =
            this.lingering.get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + LINGER)), LINGER_BYTES));
        let mut space = [0; 4096];
        while *left > 0 && sleep.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut this.io).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => break,
                Poll::Ready(Ok(())) => *left = left.saturating_sub(buffer.filled().len()),
                // The client is gone.
                Poll::Ready(Err(_)) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

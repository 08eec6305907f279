//! A client's connection of which only strictly framed requests can be read. Says of what it refused; answers nothing.
//!
//! Where a head is refused, a stand-in of our own is read instead: so the requests before it are answered first, and
//! whoever serves the connection learns by the number of the request that this one is to be refused, and why.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::framing::{RequestFraming, Step};
use crate::http::interface::Io;
use crate::http::request_head::Fault;

/// A head that has begun is complete within this time.
const HEAD: Duration = Duration::from_secs(10);
/// A connection between two requests is kept this long.
const IDLE: Duration = Duration::from_secs(75);
/// A body goes on within this time.
const BODY: Duration = Duration::from_secs(120);
/// A client that has ended its own direction and has requests open is taken to be gone when nothing was written to it
/// for this long: one that has died looks the same as one that still reads.
const GONE: Duration = Duration::from_secs(60);
/// After a refusal what the client still sends is read for this long, so that the answer is not lost in a reset…
const LINGER: Duration = Duration::from_millis(500);
/// …and at most so much of it.
const LINGER_BYTES: usize = 2 * 1024 * 1024;

/// What is read in place of a head that was refused.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused.invalid\r\nconnection: close\r\n\r\n";

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
    /// Number of the request that is a stand-in.
    refused: Option<u64>,
    /// Requests that were answered to the end.
    answered: u64,
    /// Who waits for [`InspectionHandle::resume`] or [`InspectionHandle::answered`].
    waker: Option<Waker>,
    linger: bool,
    /// `broken` has been asked.
    reported: bool,
}

/// The connection as its server reads and writes it.
pub(crate) struct InspectedStream {
    io: Io,
    shared: Arc<Mutex<InspectionState>>,
    /// May pass.
    out: BytesMut,
    /// Came, and was not looked at yet.
    rest: BytesMut,
    wait: Option<(Wait, Pin<Box<Sleep>>)>,
    /// The client has ended its direction.
    ended: Option<Pin<Box<Sleep>>>,
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

/// The same connection, for who answers its requests.
#[derive(Clone)]
pub(crate) struct InspectionHandle(Arc<Mutex<InspectionState>>);

fn lock(shared: &Mutex<InspectionState>) -> MutexGuard<'_, InspectionState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InspectionHandle {
    /// Why the request of this number, from zero, is to be refused unread.
    pub(crate) fn refused(&self, number: u64) -> Option<Fault> {
        let shared = lock(&self.0);
        shared.refused.filter(|refused| *refused == number).and_then(|_| shared.framing.faulty())
    }

    /// What was wrong with the body of a request; once.
    pub(crate) fn broken(&self) -> Option<Fault> {
        let mut shared = lock(&self.0);
        let fault = shared.framing.faulty().filter(|_| shared.refused.is_none() && !shared.reported)?;
        shared.reported = true;
        Some(fault)
    }

    /// The request that asked for an upgrade or a tunnel does not get it.
    pub(crate) fn resume(&self) {
        let mut shared = lock(&self.0);
        shared.framing.resume();
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }

    /// A request has been answered to the end, or nobody wants the rest.
    pub(crate) fn answered(&self) {
        let mut shared = lock(&self.0);
        shared.answered += 1;
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }

    /// The connection ends with an answer that its client should get, whatever it is still sending.
    pub(crate) fn linger(&self) {
        lock(&self.0).linger = true;
    }
}

impl InspectedStream {
    /// The connection, guarded, and what watches it.
    pub(crate) fn new(io: Io) -> (InspectedStream, InspectionHandle) {
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

    /// The connection itself, and what was read of it and did not pass.
    pub(crate) fn into_inner(self) -> (Io, Bytes) {
        let mut first = self.out;
        first.extend_from_slice(&self.rest);
        (self.io, first.freeze())
    }

    /// Looks at bytes that have come. How many of them pass where they are; the others went to `out` and `rest`.
    fn inspect(&mut self, mut bytes: &[u8]) -> usize {
        let mut direct = 0;
        let mut in_place = true;
        let mut shared = lock(&self.shared);
        while !bytes.is_empty() {
            match shared.framing.step(bytes) {
                Step::Pass(count) if in_place => {
                    direct += count;
                    bytes = &bytes[count..];
                }
                Step::Pass(count) => {
                    self.out.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                }
                Step::Held(count) => {
                    in_place = false;
                    bytes = &bytes[count..];
                    if let Some(held) = shared.framing.take() {
                        self.out.extend_from_slice(&held);
                    }
                }
                Step::Wait => {
                    self.rest.extend_from_slice(bytes);
                    break;
                }
                Step::Fault(_) => {
                    drop(shared);
                    self.refuse();
                    break;
                }
            }
        }
        direct
    }

    /// After a fault: a stand-in where a head should be, the end where a body should go on.
    fn refuse(&mut self) {
        let mut shared = lock(&self.shared);
        shared.linger = true;
        if shared.framing.was_in_head() && shared.refused.is_none() {
            shared.refused = Some(shared.framing.heads());
            self.out.extend_from_slice(STAND_IN);
        }
    }

    /// Whether the time for what the connection waits for is over.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<Wait> {
        let kind = {
            let mut shared = lock(&self.shared);
            if shared.framing.in_head() {
                Wait::Head
            } else if shared.framing.is_incomplete() {
                Wait::Body
            } else if shared.answered < shared.framing.heads() {
                // It is not for the client to go on; it waits for upstream.
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

    /// Something is written, and whoever is gone will not take it for long.
    fn still_there(&mut self) {
        if let Some(gone) = &mut self.ended {
            gone.as_mut().reset(Instant::now() + GONE);
        }
    }

    /// Something came: waiting begins anew, but for a head, which is to be complete in time.
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
                    // Not the end yet where an answer is to be given: at the end of a connection it would be dropped.
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
                    // Whoever serves the connection would drop the requests that are open.
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
                // Bytes of a body stand before whatever `inspect` found behind them.
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
                    lock(&this.shared).framing.fault(Fault::Incomplete);
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
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => match ready!(this.poll_time(context)) {
                    Wait::Idle => return Poll::Ready(Ok(())),
                    Wait::Head | Wait::Body => {
                        lock(&this.shared).framing.fault(Fault::TimedOut);
                        this.refuse();
                    }
                },
            }
        }
    }
}

impl AsyncWrite for InspectedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.still_there();
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.still_there();
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
                // Nobody is there to get the answer.
                Poll::Ready(Err(_)) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

//! Reads the bodies of requests, within limits: of one body's length and time, and of the bytes that all of them hold.
//!
//! A client with the token whose body does not come would keep its connection, of which there are few, and what it has sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::json_response::LARGEST_REQUEST;

/// How long no part of a body may come, how long a body may wait for its room, and what each body may take in any case.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes a second that a body has to come with beyond that. The largest may take 35 minutes.
const SLOWEST: usize = 16 << 10;
/// A body up to this length needs no room: connections are few.
const SMALL: usize = 64 << 10;
/// Bytes that all larger bodies may hold together.
const ROOM: usize = 4 * LARGEST_REQUEST;
/// The unit of room, bytes.
const UNIT: usize = 1 << 10;

/// The limits of one server.
#[derive(Debug, Clone)]
pub(super) struct BodyReader {
    room: Arc<Semaphore>,
    patience: Duration,
}

/// A body, and its room while it is kept.
#[derive(Debug)]
pub(super) struct HeldBody {
    pub(super) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

impl BodyReader {
    /// With nothing read.
    pub(super) fn new() -> BodyReader {
        BodyReader { room: Arc::new(Semaphore::new(ROOM / UNIT)), patience: PATIENCE }
    }

    /// Reads a whole body.
    ///
    /// # Errors
    /// The response: it is too long, does not come, or there is no room for it.
    pub(super) async fn read(&self, headers: &HeaderMap, body: Body) -> Result<HeldBody, Response> {
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        // A length that is no number is refused before this.
        let length = declared.map_or(Some(LARGEST_REQUEST), |length| length.parse().ok());
        let Some(length) = length.filter(|length| *length <= LARGEST_REQUEST) else { return Err(too_long()) };
        let mut room = match declared.is_some() && length > SMALL {
            true => Some(self.reserve(length).await?),
            false => None,
        };
        let mut bytes = Vec::with_capacity(if declared.is_some() { length } else { SMALL });
        let began = Instant::now();
        let mut stream = body.into_data_stream();
        loop {
            let earned = Duration::from_millis((bytes.len() * 1000 / SLOWEST) as u64);
            let deadline = (Instant::now() + self.patience).min(began + self.patience + earned);
            let part = poll_fn(|context| Pin::new(&mut stream).poll_next(context));
            match timeout_at(deadline, part).await {
                Ok(None) => return Ok(HeldBody { bytes: bytes.into(), _room: room }),
                Ok(Some(Ok(part))) if part.len() > LARGEST_REQUEST - bytes.len() => return Err(too_long()),
                Ok(Some(Ok(part))) => {
                    // One without a declared length counts as the longest once it is not small any more.
                    if room.is_none() && bytes.len() + part.len() > SMALL {
                        room = Some(self.reserve(LARGEST_REQUEST).await?);
                    }
                    bytes.extend_from_slice(&part);
                }
                Ok(Some(Err(error))) => {
                    let why = format!("the request's body cannot be read: {error}\n");
                    return Err(ended(StatusCode::BAD_REQUEST, &why));
                }
                Err(_) => {
                    let why = "the request's body does not come\nhint: send the whole of it at once\n";
                    return Err(ended(StatusCode::REQUEST_TIMEOUT, why));
                }
            }
        }
    }

    async fn reserve(&self, length: usize) -> Result<OwnedSemaphorePermit, Response> {
        let units = u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX);
        match timeout(self.patience, Arc::clone(&self.room).acquire_many_owned(units)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => {
                let why = "other large requests are being read\nhint: send it again when they have come\n";
                Err(ended(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }
}

fn too_long() -> Response {
    ended(StatusCode::PAYLOAD_TOO_LARGE, "the request is longer than 32 MiB\n")
}

/// A response to a request whose body is not read to its end, so that no other can follow.
fn ended(status: StatusCode, why: &str) -> Response {
    (status, [(header::CONNECTION, "close")], why.to_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::{Context, Poll};

    /// Parts, and then nothing any more.
    struct Stalled(VecDeque<Bytes>);

    impl futures_core::Stream for Stalled {
        type Item = Result<Bytes, std::io::Error>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.pop_front().map_or(Poll::Pending, |part| Poll::Ready(Some(Ok(part))))
        }
    }

    fn stalled(parts: &[&'static [u8]]) -> Body {
        Body::from_stream(Stalled(parts.iter().map(|part| Bytes::from_static(part)).collect()))
    }

    fn declared(length: usize) -> HeaderMap {
        [(header::CONTENT_LENGTH, length.into())].into_iter().collect()
    }

    fn reader() -> BodyReader {
        BodyReader { patience: Duration::from_millis(100), ..BodyReader::new() }
    }

    #[tokio::test]
    async fn a_body_that_comes_is_read_and_one_that_does_not_ends() {
        for headers in [HeaderMap::new(), declared(5)] {
            let read = reader().read(&headers, Body::from("hello")).await.unwrap();
            assert_eq!(read.bytes, "hello");
            for parts in [&[][..], &[&b"{"[..]], &[b"{", b"{", b"{"]] {
                let begun = std::time::Instant::now();
                let ended = reader().read(&headers, stalled(parts)).await.unwrap_err();
                assert_eq!(ended.status(), StatusCode::REQUEST_TIMEOUT);
                assert_eq!(ended.headers()[header::CONNECTION], "close");
                assert!(begun.elapsed() < Duration::from_secs(5));
            }
        }
    }

    #[tokio::test]
    async fn a_length_that_is_too_large_is_refused_before_anything_comes() {
        for headers in [declared(LARGEST_REQUEST + 1), declared(99_999_999_999)] {
            let ended = BodyReader::new().read(&headers, stalled(&[])).await.unwrap_err();
            assert_eq!(ended.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let long = Body::from(vec![b'x'; LARGEST_REQUEST + 1]);
        assert_eq!(reader().read(&HeaderMap::new(), long).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
        let all = Body::from(vec![b'x'; LARGEST_REQUEST]);
        assert_eq!(reader().read(&declared(LARGEST_REQUEST), all).await.unwrap().bytes.len(), LARGEST_REQUEST);
    }

    #[tokio::test]
    async fn large_bodies_share_their_room_and_small_ones_need_none() {
        let reader = reader();
        let large = || async { reader.read(&declared(LARGEST_REQUEST), Body::from("x")).await };
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(large().await.unwrap());
        }
        assert_eq!(large().await.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(reader.read(&declared(SMALL), Body::from("x")).await.is_ok());
        held.pop();
        assert!(large().await.is_ok());
    }
}

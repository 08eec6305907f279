//! Answers an HTTP request by one JSON document instead of a stream of events, where the answer is the only message: clients
//! bound the size of an event (the official Python SDK accepts 1 MiB), but not that of a document.
//!
//! ```text
//! POST of a call without a progress token ─ service ─ stream ─▶ the answer comes first: application/json
//!                                                         └──▶ another message, or DOCUMENT_TIMEOUT, first: the stream
//! ```
//!
//! The protocol lets the server choose for each request. A client that asks for progress gets a stream at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_core::Stream;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::framing::{duplicate_key, fault};
use super::request_body::BodyReader;
use crate::connection::DOCUMENT_TIMEOUT;
use crate::execution::call::LONGEST_CODE;

/// Largest request, bytes: the longest code with two bytes for each, as in `\"`, and the message around it.
pub(super) const LARGEST_REQUEST: usize = LONGEST_CODE * 2 + (64 << 10);

/// How long the end of a stream is awaited after its answer.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Methods whose answers can be large.
const METHODS: [&str; 2] = ["tools/call", "resources/read"];

/// The part of a request that decides between document and stream.
#[derive(Deserialize)]
struct RequestHead {
    method: String,
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "progressToken")]
    progress: Option<IgnoredAny>,
}

/// The part of a server's message that tells answers, which have no method, from requests and notifications.
#[derive(Deserialize)]
struct MessageHead {
    method: Option<IgnoredAny>,
}

/// Whether the answer of this request may be a document.
fn allows_document(request: &[u8]) -> bool {
    let Ok(head) = serde_json::from_slice::<RequestHead>(request) else { return false };
    let progress = head.params.and_then(|params| params.meta).and_then(|meta| meta.progress);
    METHODS.contains(&head.method.as_str()) && progress.is_none()
}

/// Serves one request, and makes its answer a document where possible.
pub(super) async fn prefer_document(reader: BodyReader, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.is_some_and(|kind| kind.starts_with(b"application/json"));
    let held = match reader.read(&parts.headers, body).await {
        Ok(held) => held,
        Err(ended) => return ended,
    };
    let body = &held.bytes;
    let invalid = |error: Value| {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (StatusCode::BAD_REQUEST, kind, error.to_string()).into_response()
    };
    if let Some(error) = duplicate_key(body) {
        return invalid(error);
    }
    let allowed = allows_document(body);
    let response = next.run(Request::from_parts(parts, Body::from(body.clone()))).await;
    // The library's answer to a message that it cannot parse, whatever its type.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
        && is_json
        && let Some(error) = fault(body)
    {
        return invalid(error);
    }
    drop(held);
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !allowed || !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    to_document(response).await
}

/// Makes a document of the stream's answer, or passes the stream on if it has other messages.
async fn to_document(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let mut stream = body.into_data_stream();
    let mut events = SseParser::default();
    let deadline = Instant::now() + DOCUMENT_TIMEOUT;
    let mut failed = None;
    let answer = loop {
        let bytes = match timeout_at(deadline, frame(&mut stream)).await {
            Ok(Some(Ok(bytes))) => bytes,
            Ok(Some(Err(error))) => {
                failed = Some(error);
                break None;
            }
            Ok(None) | Err(_) => break None,
        };
        match events.add(bytes) {
            Some(message)
                if serde_json::from_slice::<MessageHead>(&message).is_ok_and(|head| head.method.is_none()) =>
            {
                break Some(message);
            }
            Some(_) => break None,
            None => {}
        }
    };
    let Some(answer) = answer else {
        return Response::from_parts(parts, Body::from_stream(Resumed { seen: events.seen, failed, rest: stream }));
    };
    // The stream ends by itself after its answer. Reading to its end marks the answer as delivered.
    let until = Instant::now() + END_TIMEOUT;
    while let Ok(Some(Ok(_))) = timeout_at(until, frame(&mut stream)).await {}
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(answer))
}

/// The next chunk of a body.
async fn frame(stream: &mut BodyDataStream) -> Option<Result<Bytes, axum::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Parses a stream of events up to the first event with data.
#[derive(Default)]
struct SseParser {
    /// All chunks so far, unchanged.
    seen: VecDeque<Bytes>,
    /// The present, incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
}

impl SseParser {
    /// Adds a chunk, and returns the data of the first event that has some.
    fn add(&mut self, bytes: Bytes) -> Option<Vec<u8>> {
        self.seen.push_back(bytes.clone());
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            let Some(line) = self.line.strip_suffix(b"\n") else { continue };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            } else if line.is_empty() && !self.data.trim_ascii().is_empty() {
                return Some(std::mem::take(&mut self.data));
            }
            self.line.clear();
        }
        None
    }
}

/// A stream whose beginning was read already.
struct Resumed {
    seen: VecDeque<Bytes>,
    /// The error that followed what was read, if any.
    failed: Option<axum::Error>,
    rest: BodyDataStream,
}

impl Stream for Resumed {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(bytes) = self.seen.pop_front() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(ready!(Pin::new(&mut self.rest).poll_next(context)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_progress_token_allow_a_document() {
        for (request, expected) in [
            (r#"{"method":"tools/call","params":{"name":"run"}}"#, true),
            (r#"{"method":"tools/call","params":{"name":"run","_meta":{"x":1}}}"#, true),
            (r#"{"method":"resources/read"}"#, true),
            (r#"{"method":"tools/call","params":{"_meta":{"progressToken":0}}}"#, false),
            (r#"{"method":"subscriptions/listen"}"#, false),
            (r#"{"method":"initialize"}"#, false),
            ("", false),
        ] {
            assert_eq!(allows_document(request.as_bytes()), expected, "{request}");
        }
    }

    #[test]
    fn events_are_parsed_across_chunks_and_empty_ones_are_skipped() {
        let stream = b"id: 1\nretry: 5\ndata:\n\n: alive\n\nid: 2\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nrest";
        for size in [1, 3, stream.len()] {
            let mut events = SseParser::default();
            let found = stream.chunks(size).find_map(|piece| events.add(Bytes::copy_from_slice(piece)));
            assert_eq!(found.as_deref(), Some(&b"{\"a\":1}"[..]), "{size}");
            let seen: Vec<u8> = events.seen.iter().flatten().copied().collect();
            assert!(stream.starts_with(&seen), "the chunks are kept unchanged for a stream that is passed on");
        }
    }
}

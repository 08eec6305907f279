//! Frames the protocol's messages as lines, one JSON object each. A line that is a message is passed on, and any other line is
//! answered by an error. Memory is bounded, whatever the client sends.
//!
//! The error has a null id, since the id of a malformed request is unknown. Where the rest of the line can be parsed (the text
//! has an unpaired surrogate, or a byte that is not UTF-8), the error has the id of that request.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use cofferdam_policy::text;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, Notify, Semaphore};

/// Most errors about malformed lines that wait to be written. Beyond that, nothing more is read from the client.
const MAX_PENDING_ERRORS: usize = 64;
/// Largest line buffer that is reused for the next line, bytes.
const REUSED_CAPACITY: usize = 1 << 20;

/// A transport of lines to and from one client.
#[derive(Debug)]
pub(super) struct LineTransport<R, W> {
    read: BufReader<R>,
    /// What was read of the present line.
    line: Vec<u8>,
    longest: usize,
    /// Whether the rest of the present line is discarded: it is too long, and was answered.
    discards: bool,
    write: Arc<Mutex<Option<W>>>,
    /// The error to answer next.
    error: Option<Value>,
    pending_errors: Arc<Semaphore>,
    eof: Arc<Notify>,
}

/// What was read.
enum Frame {
    Line,
    TooLong,
    End,
}

/// The part of a message that identifies the request to answer.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    /// A transport between `read` and `write`, with lines of at most `longest` bytes.
    pub(super) fn new(read: R, write: W, longest: usize) -> LineTransport<R, W> {
        LineTransport {
            read: BufReader::with_capacity(64 << 10, read),
            line: Vec::new(),
            longest,
            discards: false,
            write: Arc::new(Mutex::new(Some(write))),
            error: None,
            pending_errors: Arc::new(Semaphore::new(MAX_PENDING_ERRORS)),
            eof: Arc::default(),
        }
    }

    /// Notified when the client has closed its end.
    pub(super) fn eof(&self) -> Arc<Notify> {
        Arc::clone(&self.eof)
    }

    /// Reads to the end of a line. It is cancel-safe: it does not await between consuming bytes and storing them.
    async fn next(&mut self) -> Result<Frame> {
        loop {
            let there = self.read.fill_buf().await?;
            if there.is_empty() {
                // A last line may lack its end.
                return Ok(if self.line.is_empty() { Frame::End } else { Frame::Line });
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let (bytes, taken) = end.map_or((there.len(), there.len()), |end| (end, end + 1));
            let fits = self.line.len() + bytes <= self.longest;
            if !self.discards && fits {
                self.line.extend_from_slice(&there[..bytes]);
            }
            self.read.consume(taken);
            if self.discards {
                self.discards = end.is_none();
            } else if !fits {
                self.discards = end.is_none();
                self.line = Vec::new();
                return Ok(Frame::TooLong);
            } else if end.is_some() {
                return Ok(Frame::Line);
            }
        }
    }

    /// Parses the present line, which is complete. If it is not a message, sets the error to answer, if any.
    fn message(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let message = if line.is_empty() { None } else { read(line).map_err(|error| self.error = error).ok() };
        if self.line.capacity() > REUSED_CAPACITY {
            self.line = Vec::new();
        }
        self.line.clear();
        message
    }
}

/// What is wrong with a message that has a key twice in one object: readers, such as a filter before this server, may take
/// either value. `None` also for what is no JSON.
pub(super) fn duplicate_key(message: &[u8]) -> Option<Value> {
    let error = cofferdam_config::json::parse(message, text::name).err().filter(serde_json::Error::is_data)?;
    let why = format!("{}\nhint: send each key once", reason(&error));
    let id = serde_json::from_slice::<Envelope>(message).ok().filter(|envelope| envelope.method.is_some());
    Some(error_response(ErrorData::invalid_params(why, None), id.and_then(|envelope| envelope.id)))
}

/// The error to answer a message with that is none of the protocol's. `None` for a notification, and for a valid message.
pub(super) fn fault(message: &[u8]) -> Option<Value> {
    let mut error = read(message).err().flatten()?;
    if let Some(Value::String(text)) = error.pointer_mut("/error/message")
        && !text.contains("\nhint: ")
    {
        text.push_str("\nhint: send one message of JSON-RPC 2.0, with an id that is a text or a whole number");
    }
    Some(error)
}

/// Parses a message, or gives the error to answer; `None` for a notification.
fn read(line: &[u8]) -> std::result::Result<RxJsonRpcMessage<RoleServer>, Option<Value>> {
    let error = match serde_json::from_slice(line) {
        Ok(message) => match duplicate_key(line) {
            None => return Ok(message),
            Some(_) if matches!(message, JsonRpcMessage::Notification(_)) => return Err(None),
            error => return Err(error),
        },
        Err(error) => error,
    };
    // The envelope ignores what is beside an id and a method, so that need not be valid.
    let envelope = serde_json::from_slice::<Envelope>(line);
    let id = match envelope {
        Ok(Envelope { id: None, method: Some(_) }) if error.is_data() && !has_id(line) => return Err(None),
        // A response of the client's is not answered: its id could be that of a request.
        Ok(Envelope { id, method: Some(_) }) => id,
        _ => None,
    };
    if let Some(found) = duplicate_key(line) {
        return Err(Some(found));
    }
    let place = error.column();
    let error = if error.is_data() {
        let message = "this is JSON, and no message of the protocol: one object with jsonrpc, method, params and id";
        ErrorData::new(ErrorCode::INVALID_REQUEST, message, None)
    } else {
        // If the rest can be parsed, the mistake is in a text.
        let hint =
            "\nhint: half of a surrogate pair, or a byte that is no UTF-8, stands for no character; send neither";
        let hint = match reason(&error) {
            why if why.starts_with("recursion limit") => {
                "\nhint: nest arrays and objects less deeply; 127 levels are read"
            }
            _ if id.is_some() => hint,
            _ => "",
        };
        let message = format!("this is no JSON, at byte {place}: {}{hint}", reason(&error));
        ErrorData::new(ErrorCode::PARSE_ERROR, message, None)
    };
    Err(Some(error_response(error, id)))
}

/// Whether there is an id at all: with one that is null a message is no notification, and no request either.
fn has_id(message: &[u8]) -> bool {
    serde_json::from_slice::<Value>(message).is_ok_and(|message| message.get("id").is_some())
}

/// An error response whose id is null where it is unknown: the library would leave it out.
fn error_response(error: ErrorData, id: Option<RequestId>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// What is wrong, without the position, and without any of the line's text.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

async fn put<W: AsyncWrite + Unpin>(write: Arc<Mutex<Option<W>>>, message: impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut write = write.lock().await;
    let write = write.as_mut().ok_or_else(|| Error::from(ErrorKind::NotConnected))?;
    write.write_all(&line).await?;
    write.flush().await
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<()>> + Send + 'static {
        put(Arc::clone(&self.write), item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if self.error.is_some() {
                let permit = Arc::clone(&self.pending_errors).acquire_owned().await.ok()?;
                let written = put(Arc::clone(&self.write), self.error.take()?);
                tokio::spawn(async move {
                    if let Err(error) = written.await {
                        tracing::debug!("an error about a malformed line was not delivered: {error}");
                    }
                    drop(permit);
                });
            }
            match self.next().await {
                Ok(Frame::Line) => {
                    if let Some(message) = self.message() {
                        return Some(message);
                    }
                }
                Ok(Frame::TooLong) => {
                    let message = format!("the line has more than {} bytes, and was not read", self.longest);
                    self.error = Some(error_response(ErrorData::new(ErrorCode::INVALID_REQUEST, message, None), None));
                }
                Ok(Frame::End) => break,
                Err(error) => {
                    tracing::error!("cannot read from the client: {error}");
                    break;
                }
            }
        }
        self.eof.notify_one();
        None
    }

    async fn close(&mut self) -> Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages that are passed on, and the answers.
    async fn fed(input: &[u8], longest: usize) -> (Vec<Value>, Vec<Value>) {
        let (write, output) = tokio::io::duplex(1 << 20);
        let mut lines = LineTransport::new(input, write, longest);
        let mut received = Vec::new();
        while let Some(message) = lines.receive().await {
            received.push(serde_json::to_value(&message).unwrap());
        }
        drop(lines.pending_errors.acquire_many(u32::try_from(MAX_PENDING_ERRORS).unwrap()).await.unwrap());
        lines.close().await.unwrap();
        let mut answers = Vec::new();
        let mut output = BufReader::new(output).lines();
        while let Some(line) = output.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (received, answers)
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn malformed_lines_are_answered_and_the_next_line_is_read() {
        for (line, code, id) in [
            (&b"nonsense"[..], -32700, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,", -32700, Value::Null),
            (b"\xff\xfe", -32700, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":\"\xff\"}", -32700, json!(7)),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"} {}", -32700, Value::Null),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\ud800"}}"#, -32700, json!(7)),
            (br#"{"method":"tools/call","params":{"name":"\udc00x"},"jsonrpc":"2.0","id":"a"}"#, -32700, json!("a")),
            (br#"{"jsonrpc":"2.0","id":7,"result":{"x":"\ud800"}}"#, -32700, Value::Null),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"code":"a","code":"b"}}}"#, -32602, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"code":"a","c\u006fde":"b"}}}"#, -32602, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","name":"list"}}"#, -32602, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{},"params":{"name":"run"}}"#, -32602, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/call","params":{}}"#, -32602, Value::Null),
            (b"[]", -32600, Value::Null),
            (b"3", -32600, Value::Null),
            (br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7.5,"method":"ping"}"#, -32600, Value::Null),
            (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, Value::Null),
            (br#"{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{}}"#, -32600, Value::Null),
        ] {
            let input = [line, b"\n", PING.as_bytes(), b"\n"].concat();
            let (received, answers) = fed(&input, 4096).await;
            let shown = String::from_utf8_lossy(line);
            assert_eq!((received.len(), answers.len()), (1, 1), "{shown}: {received:?} {answers:?}");
            assert_eq!((&answers[0]["error"]["code"], &answers[0]["id"]), (&json!(code), &id), "{shown}: {answers:?}");
            assert!(answers[0].get("id").is_some(), "an unknown id is null, and present: {answers:?}");
        }
    }

    #[tokio::test]
    async fn a_message_that_is_nested_too_deeply_says_so() {
        let nested = |levels: usize| {
            let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"run","arguments":{value}}}}}"#)
        };
        let fault = fault(nested(200).as_bytes()).unwrap();
        let message = fault["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("recursion limit") && message.ends_with("less deeply; 127 levels are read"),
            "{message}"
        );
        let (received, answers) = fed(format!("{}\n{PING}\n", nested(200)).as_bytes(), 4096).await;
        assert_eq!((received.len(), answers.len()), (1, 1));
        assert!(answers[0]["error"]["message"].as_str().unwrap().contains("127 levels"), "{answers:?}");
    }

    #[tokio::test]
    async fn a_key_may_be_in_several_objects() {
        let line = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"code":"a","env":{"code":"b","name":"c"}}}}"#;
        let (received, answers) = fed(format!("{line}\n").as_bytes(), 4096).await;
        assert_eq!((received.len(), answers), (1, Vec::new()));
        let notified = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"a":2}}"#;
        let (received, answers) = fed(format!("{notified}\n{PING}\n").as_bytes(), 4096).await;
        assert_eq!((received.len(), answers), (1, Vec::new()), "a notification is not answered");
    }

    #[tokio::test]
    async fn overlong_line_is_answered_once_and_discarded() {
        let long = "x".repeat(3 * (64 << 10));
        for longest in [PING.len(), 70 << 10] {
            let (received, answers) = fed(format!("{PING}\n{long}\n{PING}\n").as_bytes(), longest).await;
            assert_eq!((received.len(), answers.len()), (2, 1), "{longest}");
            assert!(answers[0]["error"]["message"].as_str().unwrap().contains(&format!("more than {longest} bytes")));
        }
    }

    #[tokio::test]
    async fn empty_lines_bom_and_missing_newline_are_accepted() {
        let notified = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}"#;
        let (received, answers) = fed(format!("\n\r\n\u{feff}{PING}\r\n{notified}\n{PING}").as_bytes(), 4096).await;
        assert_eq!((received.len(), answers), (2, Vec::new()), "{received:?}");
    }

    #[tokio::test]
    async fn receive_is_cancel_safe_between_pieces_of_a_line() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = LineTransport::new(server, tokio::io::sink(), 4096);
        for piece in PING.as_bytes().chunks(3).chain([&b"\n"[..]]) {
            assert!(tokio::time::timeout(std::time::Duration::from_millis(2), lines.receive()).await.is_err());
            client.write_all(piece).await.unwrap();
        }
        assert!(lines.receive().await.is_some());
    }
}

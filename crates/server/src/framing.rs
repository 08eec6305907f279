//! The protocol's messages as lines: one JSON object each. Every line that is a message is given on, and every one that is
//! none is answered; whatever comes, what is kept of it is bounded.
//!
//! What a broken line asked for is not known, so its answer has no id, except where the line says one beside what is wrong
//! with it, such as half of a surrogate pair in the code, or a byte that is no UTF-8: then that call is answered.

use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, Notify, Semaphore};

/// Answers to broken lines that may wait to be written; a client that reads none is not read from either.
const MOST_REFUSALS: usize = 64;
/// A line's memory that is kept for the next one, bytes.
const KEPT: usize = 1 << 20;

/// Lines to and from a client.
#[derive(Debug)]
pub struct Lines<R, W> {
    read: BufReader<R>,
    /// What has come of the present line.
    line: Vec<u8>,
    longest: usize,
    /// The present line is too long, and was answered.
    skips: bool,
    write: Arc<Mutex<Option<W>>>,
    /// What a broken line is to be told.
    refusal: Option<Value>,
    refusals: Arc<Semaphore>,
    ended: Arc<Notify>,
}

/// What came.
enum Came {
    Line,
    TooLong,
    End,
}

/// As much of a message as says whom to answer.
#[derive(Deserialize)]
struct Outer {
    #[serde(default)]
    id: Option<RequestId>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    /// Between these, of at most so many bytes each.
    pub fn new(read: R, write: W, longest: usize) -> Lines<R, W> {
        Lines {
            read: BufReader::with_capacity(64 << 10, read),
            line: Vec::new(),
            longest,
            skips: false,
            write: Arc::new(Mutex::new(Some(write))),
            refusal: None,
            refusals: Arc::new(Semaphore::new(MOST_REFUSALS)),
            ended: Arc::default(),
        }
    }

    /// Tells when nothing more comes.
    pub fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }

    /// Reads to the end of a line. Whoever stops waiting for it loses nothing: nothing is awaited between taking and keeping.
    async fn next(&mut self) -> Result<Came> {
        loop {
            let there = self.read.fill_buf().await?;
            if there.is_empty() {
                // A last line may lack its end.
                return Ok(if self.line.is_empty() { Came::End } else { Came::Line });
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let (bytes, taken) = end.map_or((there.len(), there.len()), |end| (end, end + 1));
            let fits = self.line.len() + bytes <= self.longest;
            if !self.skips && fits {
                self.line.extend_from_slice(&there[..bytes]);
            }
            self.read.consume(taken);
            if self.skips {
                self.skips = end.is_none();
            } else if !fits {
                self.skips = end.is_none();
                self.line = Vec::new();
                return Ok(Came::TooLong);
            } else if end.is_some() {
                return Ok(Came::Line);
            }
        }
    }

    /// The message of the present line, which is over; or what is to be told instead.
    fn message(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let message = if line.is_empty() { None } else { read(line).map_err(|told| self.refusal = told).ok() };
        if self.line.capacity() > KEPT {
            self.line = Vec::new();
        }
        self.line.clear();
        message
    }
}

/// Reads a message, or says what to answer; nothing where it was a notification.
fn read(line: &[u8]) -> std::result::Result<RxJsonRpcMessage<RoleServer>, Option<Value>> {
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    // What is beside an id and a method is not looked at, and need not be right.
    let outer = serde_json::from_slice::<Outer>(line);
    let id = match outer {
        Ok(Outer { id: None, method: Some(_) }) if error.is_data() => return Err(None),
        // An answer of the client's is no request: one to its id would be one to another of that id.
        Ok(Outer { id, method: Some(_) }) => id,
        _ => None,
    };
    let place = error.column();
    let refusal = if error.is_data() {
        let told = "the line is JSON, and no message of the protocol: one object with jsonrpc, method, params and id";
        ErrorData::new(ErrorCode::INVALID_REQUEST, told, None)
    } else {
        // Where the rest can be read, a text is what is wrong.
        let hint =
            "\nhint: half of a surrogate pair, or a byte that is no UTF-8, stands for no character; send neither";
        let hint = if id.is_some() { hint } else { "" };
        let told = format!("the line is no JSON, at byte {place}: {}{hint}", what(&error));
        ErrorData::new(ErrorCode::PARSE_ERROR, told, None)
    };
    Err(Some(refused(refusal, id)))
}

/// An error whose id is null where it is not known: the library would leave it out.
fn refused(error: ErrorData, id: Option<RequestId>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// What is wrong, without the place, and nothing of the line.
fn what(error: &serde_json::Error) -> String {
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

impl<R, W> Transport<RoleServer> for Lines<R, W>
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
            if self.refusal.is_some() {
                let turn = Arc::clone(&self.refusals).acquire_owned().await.ok()?;
                let told = put(Arc::clone(&self.write), self.refusal.take()?);
                tokio::spawn(async move {
                    if let Err(error) = told.await {
                        tracing::debug!("nobody hears of a refusal: {error}");
                    }
                    drop(turn);
                });
            }
            match self.next().await {
                Ok(Came::Line) => {
                    if let Some(message) = self.message() {
                        return Some(message);
                    }
                }
                Ok(Came::TooLong) => {
                    let told = format!("the line has more than {} bytes, and was not read", self.longest);
                    self.refusal = Some(refused(ErrorData::new(ErrorCode::INVALID_REQUEST, told, None), None));
                }
                Ok(Came::End) => break,
                Err(error) => {
                    tracing::error!("cannot read from the client: {error}");
                    break;
                }
            }
        }
        self.ended.notify_one();
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

    /// What is given on, and what is answered.
    async fn fed(input: &[u8], longest: usize) -> (Vec<Value>, Vec<Value>) {
        let (write, output) = tokio::io::duplex(1 << 20);
        let mut lines = Lines::new(input, write, longest);
        let mut came = Vec::new();
        while let Some(message) = lines.receive().await {
            came.push(serde_json::to_value(&message).unwrap());
        }
        drop(lines.refusals.acquire_many(u32::try_from(MOST_REFUSALS).unwrap()).await.unwrap());
        lines.close().await.unwrap();
        let mut answers = Vec::new();
        let mut output = BufReader::new(output).lines();
        while let Some(line) = output.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (came, answers)
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn every_broken_line_is_answered_and_the_next_one_read() {
        for (line, code, id) in [
            (&b"nonsense"[..], -32700, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,", -32700, Value::Null),
            (b"\xff\xfe", -32700, Value::Null),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":\"\xff\"}", -32700, json!(7)),
            (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"} {}", -32700, Value::Null),
            (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\ud800"}}"#, -32700, json!(7)),
            (br#"{"method":"tools/call","params":{"name":"\udc00x"},"jsonrpc":"2.0","id":"a"}"#, -32700, json!("a")),
            (br#"{"jsonrpc":"2.0","id":7,"result":{"x":"\ud800"}}"#, -32700, Value::Null),
            (b"[]", -32600, Value::Null),
            (b"3", -32600, Value::Null),
            (br#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600, json!(7)),
            (br#"{"jsonrpc":"2.0","id":7.5,"method":"ping"}"#, -32600, Value::Null),
        ] {
            let input = [line, b"\n", PING.as_bytes(), b"\n"].concat();
            let (came, answers) = fed(&input, 4096).await;
            let shown = String::from_utf8_lossy(line);
            assert_eq!((came.len(), answers.len()), (1, 1), "{shown}: {came:?} {answers:?}");
            assert_eq!((&answers[0]["error"]["code"], &answers[0]["id"]), (&json!(code), &id), "{shown}: {answers:?}");
            assert!(answers[0].get("id").is_some(), "an id that is not known is null, and there: {answers:?}");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_is_answered_once_and_not_kept() {
        let long = "x".repeat(3 * (64 << 10));
        for longest in [PING.len(), 70 << 10] {
            let (came, answers) = fed(format!("{PING}\n{long}\n{PING}\n").as_bytes(), longest).await;
            assert_eq!((came.len(), answers.len()), (2, 1), "{longest}");
            assert!(answers[0]["error"]["message"].as_str().unwrap().contains(&format!("more than {longest} bytes")));
        }
    }

    #[tokio::test]
    async fn lines_may_be_empty_marked_or_without_an_end() {
        let notified = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}"#;
        let (came, answers) = fed(format!("\n\r\n\u{feff}{PING}\r\n{notified}\n{PING}").as_bytes(), 4096).await;
        assert_eq!((came.len(), answers), (2, Vec::new()), "{came:?}");
    }

    #[tokio::test]
    async fn a_line_that_comes_in_pieces_is_one_and_who_stops_waiting_loses_nothing() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = Lines::new(server, tokio::io::sink(), 4096);
        for piece in PING.as_bytes().chunks(3).chain([&b"\n"[..]]) {
            assert!(tokio::time::timeout(std::time::Duration::from_millis(2), lines.receive()).await.is_err());
            client.write_all(piece).await.unwrap();
        }
        assert!(lines.receive().await.is_some());
    }
}

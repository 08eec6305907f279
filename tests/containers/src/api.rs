//! Asks an engine over its Docker-compatible API, so that tests see what there is besides the product's own word.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::engine::Engine;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; `Value::Null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl Engine {
    /// One request. A body comes with its content type.
    ///
    /// # Errors
    /// When the engine cannot be reached or does not speak HTTP. An error status is no error here.
    pub fn api(&self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> Result<Answer, String> {
        let failed = |what: &str, e: std::io::Error| format!("{method} {path}: cannot {what}: {e}");
        let mut stream = UnixStream::connect(self.socket()).map_err(|e| failed("connect", e))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|e| failed("set a time limit", e))?;
        let mut head = format!("{method} /v1.40{path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n");
        if let Some((kind, bytes)) = body {
            head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", bytes.len());
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).map_err(|e| failed("write", e))?;
        stream.write_all(body.map_or(&[], |b| b.1)).map_err(|e| failed("write", e))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).map_err(|e| failed("read", e))?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(format!("{method} {path}: `{line}`"))?;
        let mut chunked = false;
        loop {
            line.clear();
            if reader.read_line(&mut line).map_err(|e| failed("read", e))? == 0 || line.trim().is_empty() {
                break;
            }
            chunked |= line.to_ascii_lowercase().replace(' ', "").starts_with("transfer-encoding:chunked");
        }
        let mut raw = Vec::new();
        reader.read_to_end(&mut raw).map_err(|e| failed("read", e))?;
        Ok(Answer { status, body: if chunked { joined(&raw) } else { raw } })
    }

    /// Puts an image archive (see [`crate::image`]) into the engine's store.
    ///
    /// # Errors
    /// The engine's words.
    pub fn load(&self, archive: &Path) -> Result<(), String> {
        let bytes = std::fs::read(archive).map_err(|e| format!("cannot read {}: {e}", archive.display()))?;
        let answer = self.api("POST", "/images/load?quiet=1", Some(("application/x-tar", &bytes)))?;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status == 200 && !said.contains("\"error\"") { Ok(()) } else { Err(format!("image load: {said}")) }
    }

    /// Names of all containers, running or not, that the product made.
    ///
    /// # Errors
    /// The engine's words.
    pub fn containers(&self) -> Result<Vec<String>, String> {
        let answer = self.api("GET", "/containers/json?all=1", None)?;
        let list = answer.json();
        let list = list.as_array().ok_or(format!("containers: {}", String::from_utf8_lossy(&answer.body)))?;
        Ok(list
            .iter()
            .flat_map(|container| container["Names"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .map(|name| name.trim_start_matches('/').to_owned())
            .filter(|name| name.starts_with("cofferdam-"))
            .collect())
    }

    /// What the engine says of a container.
    ///
    /// # Errors
    /// The engine's words, for one that is not there.
    pub fn inspect(&self, name: &str) -> Result<Value, String> {
        let answer = self.api("GET", &format!("/containers/{name}/json"), None)?;
        if answer.status == 200 { Ok(answer.json()) } else { Err(String::from_utf8_lossy(&answer.body).into_owned()) }
    }

    /// Names of all volumes.
    ///
    /// # Errors
    /// The engine's words.
    pub fn volumes(&self) -> Result<Vec<String>, String> {
        let answer = self.api("GET", "/volumes", None)?.json();
        let list = answer["Volumes"].as_array().cloned().unwrap_or_default();
        Ok(list.iter().filter_map(|volume| volume["Name"].as_str().map(str::to_owned)).collect())
    }
}

/// The body of a chunked answer.
fn joined(raw: &[u8]) -> Vec<u8> {
    let (mut body, mut rest) = (Vec::new(), raw);
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..end]);
        let size = usize::from_str_radix(size.split(';').next().unwrap_or("").trim(), 16).unwrap_or(0);
        let Some(chunk) = rest.get(end + 2..end + 2 + size).filter(|_| size > 0) else { break };
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or(&[]);
    }
    body
}

//! A registry of one image on loopback, over plain HTTP, from which an engine pulls: for everybody, or for who has the name and
//! password.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Podman asks for TLS but where its configuration names a registry: `supervisor.py` names these ports of 127.0.0.1. Docker
/// takes every one.
const PORTS: [u16; 2] = [39417, 39432];
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A registry that serves for as long as the process lives.
#[derive(Debug, Clone)]
pub struct Registry {
    /// Where it listens.
    pub port: u16,
    image: Arc<Image>,
}

#[derive(Debug)]
struct Image {
    name: String,
    /// What `Authorization` has to be.
    wanted: Option<String>,
    manifest: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
    asked: AtomicUsize,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl Registry {
    /// Serves an image of one layer, a tar archive, which declares the volume `/data`. `basic` is `user:password` in base64,
    /// where the registry wants to know them.
    ///
    /// # Errors
    /// No port is free.
    pub fn serve(layer: Vec<u8>, name: &str, basic: Option<&str>) -> Result<Registry, String> {
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": { "Volumes": { "/data": {} } },
            "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
        })
        .to_string()
        .into_bytes();
        let descriptor =
            |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "size": bytes.len(), "digest": digest(bytes) });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.docker.container.image.v1+json", &config),
            "layers": [descriptor("application/vnd.docker.image.rootfs.diff.tar", &layer)],
        });
        let image = Arc::new(Image {
            name: name.to_owned(),
            wanted: basic.map(|basic| format!("Basic {basic}")),
            manifest: manifest.to_string().into_bytes(),
            blobs: [config, layer].map(|bytes| (digest(&bytes), bytes)).into(),
            asked: AtomicUsize::new(0),
        });
        let listener = (PORTS[0]..=PORTS[1])
            .find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok())
            .ok_or_else(|| format!("none of the ports {PORTS:?} is free"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let serving = image.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let image = serving.clone();
                std::thread::spawn(move || drop(image.answer(stream)));
            }
        });
        Ok(Registry { port, image })
    }

    /// The image by a tag; `1` is the one that it has.
    pub fn tagged(&self, tag: &str) -> String {
        format!("127.0.0.1:{}/{}:{tag}", self.port, self.image.name)
    }

    /// The image by its digest.
    pub fn by_digest(&self) -> String {
        format!("127.0.0.1:{}/{}@{}", self.port, self.image.name, digest(&self.image.manifest))
    }

    /// How many requests came.
    pub fn asked(&self) -> usize {
        self.image.asked.load(Ordering::Relaxed)
    }
}

impl Image {
    /// One connection, as long as it lasts; a blob comes in pieces, so that there is something to tell of.
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let (mut header, mut given) = (String::new(), None);
            while reader.read_line(&mut header)? > 2 {
                if let Some((name, value)) = header.split_once(':')
                    && name.eq_ignore_ascii_case("authorization")
                {
                    given = Some(value.trim().to_owned());
                }
                header.clear();
            }
            let mut words = line.split(' ');
            let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(()) };
            self.asked.fetch_add(1, Ordering::Relaxed);
            let of = |kind: &str| path.strip_prefix(&format!("/v2/{}/{kind}/", self.name)).map(str::to_owned);
            let (status, kind, body): (&str, &str, &[u8]) = if self.wanted.is_some() && self.wanted != given {
                let body = br#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
                ("401 Unauthorized", "application/json", body)
            } else if path == "/v2/" {
                ("200 OK", "application/json", b"{}")
            } else if of("manifests").is_some_and(|named| named == "1" || named == digest(&self.manifest)) {
                ("200 OK", MANIFEST, &self.manifest)
            } else if let Some(blob) = of("blobs").and_then(|digest| self.blobs.get(&digest)) {
                ("200 OK", "application/octet-stream", blob)
            } else {
                let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
                ("404 Not Found", "application/json", body)
            };
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
                 WWW-Authenticate: Basic realm=\"test\"\r\nDocker-Distribution-Api-Version: registry/2.0\r\n\r\n",
                body.len(),
                digest(body)
            )?;
            if method != "HEAD" {
                for piece in body.chunks(200_000) {
                    stream.write_all(piece)?;
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
        }
    }
}

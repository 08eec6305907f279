//! A registry of our own on loopback, from which an engine pulls. Docker alone: Podman asks for TLS unless its
//! configuration names the registry.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;

/// What a registry has of one image.
struct Registry {
    name: String,
    manifest: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
    asked: AtomicUsize,
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

impl Registry {
    fn of(layer: Vec<u8>, name: &str) -> Registry {
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
            "layers": [descriptor("application/vnd.docker.image.rootfs.diff.tar.gzip", &layer)],
        });
        Registry {
            name: name.to_owned(),
            manifest: manifest.to_string().into_bytes(),
            blobs: [config, layer].map(|bytes| (digest(&bytes), bytes)).into(),
            asked: AtomicUsize::new(0),
        }
    }

    /// One connection, as long as it lasts; a blob comes in pieces, so that there is something to tell of.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut header = String::new();
            while reader.read_line(&mut header)? > 2 {
                header.clear();
            }
            let mut words = line.split(' ');
            let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(()) };
            self.asked.fetch_add(1, Ordering::Relaxed);
            let of = |kind: &str| path.strip_prefix(&format!("/v2/{}/{kind}/", self.name)).map(str::to_owned);
            let (status, kind, body): (&str, &str, &[u8]) = if path == "/v2/" {
                ("200 OK", "application/json", b"{}")
            } else if of("manifests").is_some_and(|named| named == "1" || named == digest(&self.manifest)) {
                ("200 OK", MANIFEST, &self.manifest)
            } else if let Some(blob) = of("blobs").and_then(|digest| self.blobs.get(&digest)) {
                ("200 OK", "application/octet-stream", blob)
            } else {
                (
                    "404 Not Found",
                    "application/json",
                    br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
                )
            };
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
                 Docker-Distribution-Api-Version: registry/2.0\r\n\r\n",
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

#[test]
fn an_image_is_pulled_with_progress_and_then_is_there() {
    let work = work();
    // Unlike every other: of a layer that it knows the engine asks for nothing.
    let (root, archive) = (work.path().join("root"), work.path().join("layer.tar"));
    image::root(&root, &[]).expect("a root");
    std::fs::write(root.join("etc/once"), crate::random::uuid()).expect("a file");
    image::tarball(&root, &archive).expect("a tarball");
    let layer = std::fs::read(archive).expect("a layer");
    for Pair { kind, engine, .. } in pairs().into_iter().filter(|pair| pair.kind == Kind::Docker) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let name = format!("cofferdam/pulled-{}", std::process::id());
        let registry: &'static Registry = Box::leak(Box::new(Registry::of(layer.clone(), &name)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || drop(registry.serve(stream)));
            }
        });
        let told = std::cell::RefCell::new(Vec::new());
        let reference = format!("127.0.0.1:{port}/{name}:1");
        let root = Rootfs::Image(reference.clone());
        let ready = engine
            .prepare(&root, &[], &|progress| told.borrow_mut().push(progress))
            .unwrap_or_else(|failure| panic!("{kind:?} {failure:?}"));
        assert_eq!(ready.volumes, ["/data"], "{kind:?}");
        let told = told.into_inner();
        let bytes: Vec<u64> = told.iter().map(|progress| progress.done).collect();
        assert!(told.iter().all(|progress| progress.what == format!("pulling {reference}")), "{told:?}");
        assert!(bytes.is_sorted() && bytes.len() > 3, "{kind:?}: it grows: {bytes:?}");
        let last = told.last().expect("told");
        assert_eq!((last.done, last.total), (layer.len() as u64, Some(layer.len() as u64)), "{kind:?}");
        // Now it is there: nobody is asked.
        let asked = registry.asked.load(Ordering::Relaxed);
        assert_eq!(engine.prepare(&root, &[], &quiet).expect("there").reference, ready.reference);
        assert_eq!(registry.asked.load(Ordering::Relaxed), asked, "{kind:?}");
        let out = work.path().join(format!("{kind:?}"));
        run(&engine, &shape(root, &out, "echo pulled > /out/said"));
        assert_eq!(said(&out, "said"), "pulled\n", "{kind:?}");
        // By digest as well, and not what the registry does not have.
        let by_digest = format!("127.0.0.1:{port}/{name}@{}", digest(&registry.manifest));
        let found = engine.prepare(&Rootfs::Image(by_digest), &[], &quiet).expect("there");
        assert_eq!(found.reference, ready.reference, "{kind:?}");
        let missing = format!("127.0.0.1:{port}/{name}:2");
        let failure = engine.prepare(&Rootfs::Image(missing), &[], &quiet).expect_err("there is no such tag");
        assert!(failure.step == "image" && failure.message.contains("manifest"), "{kind:?} {failure:?}");
        images::untag(&engine.known().expect("known").client, &reference);
    }
}

//! Signed checkpoints: the owner of a key confirms the end of the chain. Ed25519 (RFC 8032). Pure except for reading
//! and creating keys.

use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use super::error::AuditError;
use super::record::{AuditEntry, AuditRecord, Link, hex, unhex};

/// Prefix of signed messages, so that a signature cannot be used for anything else (domain separation).
const DOMAIN: &[u8] = b"cofferdam audit checkpoint v2\0";
/// The same, of those that name no trail: the first ones, and where nothing is left that says which trail it is.
const DOMAIN_UNNAMED: &[u8] = b"cofferdam audit checkpoint v1\0";
/// The kind of a checkpoint's record.
pub(crate) const KIND: &str = "checkpoint";

/// A key that signs.
#[derive(Clone)]
pub struct CheckpointKey(SigningKey);

/// The public key, which verifies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl std::fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key of {}", self.public().text())
    }
}

fn message(link: &Link, trail: Option<&str>) -> Vec<u8> {
    let end = [&link.seq.to_be_bytes()[..], &link.hash].concat();
    match trail {
        // The number and the hash have a fixed length, so the name is what is left.
        Some(trail) => [DOMAIN, &end, trail.as_bytes()].concat(),
        None => [DOMAIN_UNNAMED, &end].concat(),
    }
}

impl CheckpointKey {
    /// Makes one, and writes it to a new file that only its owner can read: 64 hexadecimal digits.
    ///
    /// # Errors
    /// There is no randomness, or the file is there already or cannot be written.
    pub fn make(path: &Path) -> Result<CheckpointKey, AuditError> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut seed = [0u8; 32];
        let io = |source: std::io::Error| AuditError::Io { place: format!("cannot make {}", path.display()), source };
        let got =
            rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).map_err(|e| io(e.into()))?;
        if got != seed.len() {
            return Err(io(std::io::Error::other("too little randomness")));
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        file.write_all(format!("{}\n", hex(&seed)).as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        Ok(CheckpointKey(SigningKey::from_bytes(&seed)))
    }

    /// Reads one. A file that others can read holds no secret and is refused.
    ///
    /// # Errors
    /// The file cannot be read, is anybody's, or holds no key.
    pub fn read(path: &Path) -> Result<CheckpointKey, AuditError> {
        use std::io::Read;
        use std::os::unix::fs::MetadataExt;
        let io = |source| AuditError::Io { place: format!("cannot read {}", path.display()), source };
        let mut file = std::fs::File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.mode() & 0o077 != 0 {
            let place = path.display();
            return Err(AuditError::Key { what: format!("others can read {place}: chmod 600 {place}") });
        }
        let mut text = String::new();
        file.by_ref().take(256).read_to_string(&mut text).map_err(io)?;
        let seed = unhex(text.trim_end()).ok_or_else(|| AuditError::Key {
            what: format!("{} holds no key: 64 hexadecimal digits", path.display()),
        })?;
        Ok(CheckpointKey(SigningKey::from_bytes(&seed)))
    }

    /// The public key, which checks its signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// A checkpoint of the chain of this trail that ends so.
    pub(super) fn sign(&self, end: &Link, trail: Option<&str>) -> AuditEntry {
        let entry = trail.map_or(AuditEntry::new(KIND), |trail| AuditEntry::new(KIND).with("trail", trail));
        entry
            .with("seq", end.seq)
            .with("head", hex(&end.hash))
            .with("key", self.public().text())
            .with("signature", hex(&self.0.sign(&message(end, trail)).to_bytes()))
    }
}

impl PublicKey {
    /// 64 hexadecimal digits.
    pub fn text(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// Reads those.
    ///
    /// # Errors
    /// It is no key.
    pub fn parse(text: &str) -> Result<PublicKey, AuditError> {
        let key = unhex(text.trim()).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        key.map(PublicKey).ok_or_else(|| AuditError::Key { what: "not a public key: 64 hexadecimal digits".into() })
    }
}

/// Checks a checkpoint's record against the chain before it, and the trail that it is in. Gives who signed.
///
/// # Errors
/// It is of another chain or trail, or its signature is not its key's.
pub(crate) fn check(record: &AuditRecord, before: &Link, trail: Option<&str>) -> Result<PublicKey, &'static str> {
    let text = |key: &str| record.data.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    if record.data.get("seq").and_then(serde_json::Value::as_u64) != Some(before.seq)
        || text("head") != hex(&before.hash)
    {
        return Err("it is of another chain");
    }
    let named = record.data.contains_key("trail").then(|| text("trail"));
    if named.is_some() && named != trail {
        return Err("it is of another trail");
    }
    let key = PublicKey::parse(text("key")).map_err(|_| "it names no key")?;
    let signature: [u8; 64] = unhex(text("signature")).ok_or("it has no signature")?;
    // Strict: no second signature of the same message passes.
    key.0
        .verify_strict(&message(before, named), &Signature::from_bytes(&signature))
        .map_err(|_| "its signature is wrong")?;
    Ok(key)
}

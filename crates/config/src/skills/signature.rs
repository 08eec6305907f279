//! Signs and verifies manifests: keccak256 over the canonical form, a recoverable secp256k1 signature over that hash without any
//! prefix, and the address of the recovered key.
//!
//! ```text
//! signature = 0x r(32) s(32) v(1)      v: 0 or 1, or 27 or 28; s in the lower half of the order
//! address   = the last 20 bytes of keccak256 over the key's 64 bytes
//! ```
//!
//! A signature has two encodings, by v, with one meaning, and is not malleable otherwise. Owns keys and their files as well. Does
//! not decide whether a publisher is trusted.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_engine::audit::hex;
use k256::ecdsa::{RecoveryId, Signature, SigningKey, VerifyingKey};
use sha3::{Digest as _, Keccak256};

use super::manifest::Manifest;

/// Why a manifest's signature is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none.
    #[error("the manifest is not signed")]
    Missing,
    /// It has another length.
    #[error("the signature has {0} bytes, and not 65: r, s and v")]
    Length(usize),
    /// Not hexadecimal.
    #[error("the signature is not `0x` and hexadecimal digits")]
    Text,
    /// Of another form of signature.
    #[error("the signature's last byte is {0}, and not 0, 1, 27 or 28")]
    Recovery(u8),
    /// One of two that say the same: the one with the larger s.
    #[error("the signature's s is in the upper half of the order, so that it could have been made of another one")]
    Malleable,
    /// There is no such point.
    #[error("the signature is none: no key can have made it")]
    NoKey,
    /// Somebody else's, or of something else.
    #[error("the signature is that of {recovered}, and the publisher's address is {publisher}")]
    Another {
        /// Whose key signed this very manifest, if any did.
        recovered: String,
        /// Who should have.
        publisher: String,
    },
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A system call failed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no secret.
    #[error("others can read the key {0}\nhint: chmod 600 {0}")]
    Open(PathBuf),
    /// It is no key.
    #[error("{0} holds no key: 64 hexadecimal digits, of a number below the order of secp256k1")]
    None(PathBuf),
}

/// A hash of what is signed, which names one version of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionHash(pub [u8; 32]);

impl VersionHash {
    /// The version that this manifest describes, independent of the signature and its encoding.
    pub fn of(manifest: &Manifest) -> VersionHash {
        VersionHash(keccak256(&manifest.canonical()))
    }

    /// As 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// A publisher's key.
pub struct PublisherKey(SigningKey);

impl std::fmt::Debug for PublisherKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key of {}", self.address())
    }
}

impl PublisherKey {
    /// Makes one, and writes it to a new file that only its owner can read: 64 hexadecimal digits.
    ///
    /// # Errors
    /// There is no randomness, or the file is there already or cannot be written.
    pub fn make(path: &Path) -> Result<PublisherKey, KeyError> {
        let io = |source| KeyError::Io { operation: "make", path: path.to_owned(), source };
        let key = loop {
            let mut seed = [0u8; 32];
            let got = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
            if got.map_err(|error| io(error.into()))? != seed.len() {
                return Err(io(std::io::Error::other("too little randomness")));
            }
            // One in 2^128 is no key.
            if let Some(key) = PublisherKey::from_bytes(&seed) {
                break key;
            }
        };
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
        let text = format!("{}\n", hex(&key.0.to_bytes()));
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        Ok(key)
    }

    /// Reads one. A file that others can read holds no secret and is refused.
    ///
    /// # Errors
    /// The file cannot be read, is accessible to other users, or does not contain a key.
    pub fn read(path: &Path) -> Result<PublisherKey, KeyError> {
        let io = |source| KeyError::Io { operation: "read", path: path.to_owned(), source };
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(KeyError::None(path.to_owned()));
        }
        if about.mode() & 0o077 != 0 {
            return Err(KeyError::Open(path.to_owned()));
        }
        let mut text = String::new();
        (&file).take(256).read_to_string(&mut text).map_err(io)?;
        let text = text.trim_end();
        let seed = unhex(text.strip_prefix("0x").unwrap_or(text));
        seed.and_then(|seed| PublisherKey::from_bytes(&seed.try_into().ok()?))
            .ok_or_else(|| KeyError::None(path.to_owned()))
    }

    /// The key that is this number; none, where there is none.
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<PublisherKey> {
        SigningKey::from_slice(bytes).ok().map(PublisherKey)
    }

    /// The address by which others know it, in lower case.
    pub fn address(&self) -> String {
        address(self.0.verifying_key())
    }

    /// Signs a manifest; a signature that it had goes.
    ///
    /// # Errors
    /// The manifest's publisher has another address.
    pub fn sign(&self, manifest: &mut Manifest) -> Result<(), SignatureError> {
        let own = self.address();
        if !own.eq_ignore_ascii_case(&manifest.publisher.address) {
            let publisher = manifest.publisher.address.clone();
            return Err(SignatureError::Another { recovered: own, publisher });
        }
        let hash = VersionHash::of(manifest).0;
        let (signature, recovery) = self.0.sign_prehash_recoverable(&hash);
        let mut bytes = signature.to_bytes().to_vec();
        bytes.push(27 + recovery.to_byte());
        manifest.signature = Some(format!("0x{}", hex(&bytes)));
        // What is handed out verifies, or is not handed out.
        verify(manifest)
    }
}

/// Whether a manifest is signed by its publisher.
///
/// # Errors
/// Why not.
pub fn verify(manifest: &Manifest) -> Result<(), SignatureError> {
    let text = manifest.signature.as_deref().ok_or(SignatureError::Missing)?;
    let bytes = text.strip_prefix("0x").and_then(unhex).ok_or(SignatureError::Text)?;
    let recovered = recover(&VersionHash::of(manifest).0, &bytes)?;
    if recovered.eq_ignore_ascii_case(&manifest.publisher.address) {
        return Ok(());
    }
    Err(SignatureError::Another { recovered, publisher: manifest.publisher.address.clone() })
}

/// The address of the key that made this signature of that hash.
///
/// # Errors
/// It is no signature, or not the one spelling of it that is accepted.
pub(crate) fn recover(hash: &[u8; 32], bytes: &[u8]) -> Result<String, SignatureError> {
    let [rs @ .., v] = bytes else { return Err(SignatureError::Length(0)) };
    if rs.len() != 64 {
        return Err(SignatureError::Length(bytes.len()));
    }
    let recovery = match v {
        0 | 27 => RecoveryId::new(false, false),
        1 | 28 => RecoveryId::new(true, false),
        other => return Err(SignatureError::Recovery(*other)),
    };
    let signature = Signature::from_slice(rs).map_err(|_| SignatureError::NoKey)?;
    if signature.normalize_s() != signature {
        return Err(SignatureError::Malleable);
    }
    let key = VerifyingKey::recover_from_prehash(hash, &signature, recovery).map_err(|_| SignatureError::NoKey)?;
    Ok(address(&key))
}

fn address(key: &VerifyingKey) -> String {
    let point = key.to_sec1_point(false);
    // The first byte says that both coordinates follow.
    format!("0x{}", hex(&keccak256(&point.as_bytes()[1..])[12..]))
}

fn keccak256(bytes: &[u8]) -> [u8; 32] {
    Keccak256::digest(bytes).into()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((nibble(high)? * 16 + nibble(low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

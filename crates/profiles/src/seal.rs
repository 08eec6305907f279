//! Authenticates cache entries, so that only those that this user's own commands wrote are used.
//!
//! HMAC-SHA-256 (RFC 2104). The key is in the state directory, which no sandbox sees: a program that can write to the cache cannot
//! forge an entry.

use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cofferdam_policy::BaseDirectory;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

use crate::private;

const NAME: &str = "policies.key";
const BLOCK: usize = 64;

/// The key of this user.
pub(crate) struct SealKey([u8; 32]);

/// The default directory of the key: below `$XDG_STATE_HOME` if that is absolute, else below `~/.local/state`.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let state = BaseDirectory::State;
    state.of(std::env::var_os(state.variable()), std::env::var_os("HOME")).map(|base| base.join("cofferdam"))
}

impl SealKey {
    /// The key in this directory, created with `make` if it does not exist. `None` if there is no key that only this user can have
    /// read.
    pub(crate) fn of(directory: &Path, make: bool) -> Option<SealKey> {
        let open = if make { private::open_or_make(directory) } else { private::open(directory) }.ok()?;
        own(&open, 0o022)?;
        if let Some(key) = read(&open) {
            return Some(key);
        }
        if !make {
            return None;
        }
        let mut bytes = [0; 32];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
        if filled != bytes.len() {
            return None;
        }
        private::replace(&open, NAME, &bytes, true).ok()?;
        // Another process may have created a key meanwhile: the one in the file counts.
        read(&open)
    }

    /// The MAC of these bytes, hexadecimal.
    pub(crate) fn code(&self, bytes: &[u8]) -> String {
        let pad = |with: u8| {
            let mut block = [with; BLOCK];
            block.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(bytes).finalize();
        let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
        crate::identity::hex(&outer)
    }

    /// Whether this is the MAC of these bytes. Takes constant time.
    pub(crate) fn suits(&self, bytes: &[u8], code: &[u8]) -> bool {
        let right = self.code(bytes);
        right.len() == code.len() && right.bytes().zip(code).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

fn read(directory: impl AsFd) -> Option<SealKey> {
    let file = private::open_file(directory, NAME).ok()?;
    own(&file, 0o077)?;
    let mut bytes = Vec::new();
    file.take(33).read_to_end(&mut bytes).ok()?;
    bytes.try_into().ok().map(SealKey)
}

/// Whether the file is this user's, and has none of these permission bits.
fn own(fd: impl AsFd, rights: u32) -> Option<()> {
    let stat = rustix::fs::fstat(fd).ok()?;
    (stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & rights == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_rfc_2104() {
        // RFC 4231, test case 2, whose key is shorter: zeros after it change nothing.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let key = SealKey(key);
        let code = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(key.code(b"what do ya want for nothing?"), code);
        assert!(key.suits(b"what do ya want for nothing?", code.as_bytes()));
        assert!(!key.suits(b"what do ya want for nothing!", code.as_bytes()) && !key.suits(b"", b""));
    }
}

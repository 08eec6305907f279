//! The bearer token of the HTTP transport: where it is read from or made, and the comparison with a request's header.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The environment variable with the token.
pub(super) const VARIABLE: &str = "COFFERDAM_MCP_TOKEN";

/// Shortest token that is accepted, bytes.
const SHORTEST: usize = 16;

/// Why the token cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or created.
    #[error("cannot use the token file {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Other users could read the file.
    #[error("the token file {path} can be read by others than its owner, or is not yours\nhint: chmod 600 {path}")]
    Open {
        /// The file.
        path: String,
    },
    /// The token is too short, or has other characters than those of a bearer token.
    #[error("the token of {place} is not {SHORTEST} or more letters, digits or -._~+/=\nhint: openssl rand -hex 32")]
    Weak {
        /// The file or variable.
        place: String,
    },
    /// The system provides no random numbers.
    #[error("cannot make a token: {0}")]
    Random(std::io::Error),
}

/// A bearer token. Its `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    fn checked(text: &str, place: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b));
        if text.len() < SHORTEST || !plain {
            return Err(TokenError::Weak { place: place.to_owned() });
        }
        Ok(Token(text.to_owned()))
    }

    /// The token in the environment variable.
    ///
    /// # Errors
    /// It is too short, or has other characters than those of a bearer token.
    pub(super) fn from_variable(text: &str) -> Result<Token, TokenError> {
        Token::checked(text, VARIABLE)
    }

    /// A new random token of 256 bits.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(super) fn random() -> Result<Token, TokenError> {
        let mut bytes = [0u8; 32];
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| TokenError::Random(errno.into()))?;
        }
        Ok(Token(cofferdam_engine::audit::hex(&bytes)))
    }

    /// The token in a file. A file that does not exist is created with a random token. No sandbox of this process shows it.
    ///
    /// # Errors
    /// The file cannot be read or created, or other users could read it.
    pub(super) fn from_file(path: &Path) -> Result<Token, TokenError> {
        let shown = path.display().to_string();
        let failed = |source| TokenError::File { path: shown.clone(), source };
        let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match created {
            Ok(mut file) => {
                let token = Token::random()?;
                file.write_all(format!("{}\n", token.0).as_bytes()).map_err(failed)?;
                cofferdam_engine::hide(path).map_err(failed)?;
                return Ok(token);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        // Non-blocking, because the path may be a FIFO.
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || !own || metadata.mode() & 0o077 != 0 {
            return Err(TokenError::Open { path: shown });
        }
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text).map_err(failed)?;
        cofferdam_engine::hide(path).map_err(failed)?;
        Token::checked(&text, &shown)
    }

    /// The token itself, to show it to the operator.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether an `Authorization` header has this token. The comparison takes constant time for tokens of its length.
    pub(super) fn matches_header(&self, header: Option<&[u8]>) -> bool {
        let Some((scheme, sent)) = header.and_then(|header| header.split_at_checked(7)) else { return false };
        if !scheme.eq_ignore_ascii_case(b"bearer ") || sent.len() != self.0.len() {
            return false;
        }
        let differing = sent.iter().zip(self.0.as_bytes()).fold(0u8, |all, (a, b)| std::hint::black_box(all | (a ^ b)));
        differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn authorization_header_must_match_in_full() {
        let token = Token::from_variable("0123456789abcdef").unwrap();
        assert!(
            token.matches_header(Some(b"Bearer 0123456789abcdef"))
                && token.matches_header(Some(b"bearer 0123456789abcdef"))
        );
        for wrong in
            [&b""[..], b"Bearer ", b"Bearer 0123456789abcdeX", b"Bearer 0123456789abcde", b"Basic  0123456789abcdef"]
        {
            assert!(!token.matches_header(Some(wrong)), "{wrong:?}");
        }
        assert!(!token.matches_header(None));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn token_file_is_created_private_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::from_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!((Token::from_file(&path).unwrap() == token, token.text().len()), (true, 64));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::from_file(&path).unwrap_err().to_string().contains("hint: chmod 600"));
        std::fs::write(&path, "short").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(Token::from_file(&path), Err(TokenError::Weak { .. })));
    }

    #[test]
    fn random_tokens_differ() {
        assert!(Token::random().unwrap() != Token::random().unwrap());
    }
}

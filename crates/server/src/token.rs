//! The bearer token of the HTTP transport: where it comes from, and how one that was sent is compared.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The variable that holds the token.
pub const VARIABLE: &str = "COFFERDAM_MCP_TOKEN";

/// Shortest token that is taken, bytes.
const SHORTEST: usize = 16;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot use the token file {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Others could read it.
    #[error("the token file {path} can be read by others than its owner, or is not yours\nhint: chmod 600 {path}")]
    Open {
        /// The file.
        path: String,
    },
    /// It is too short, or no plain text.
    #[error("the token of {place} is not {SHORTEST} or more letters, digits or -._~+/=\nhint: openssl rand -hex 32")]
    Weak {
        /// The file or variable.
        place: String,
    },
    /// The system has no random numbers.
    #[error("cannot make a token: {0}")]
    Random(std::io::Error),
}

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

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

    /// The token of a variable.
    ///
    /// # Errors
    /// It is too easy.
    pub fn of_variable(text: &str) -> Result<Token, TokenError> {
        Token::checked(text, VARIABLE)
    }

    /// A new one.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new() -> Result<Token, TokenError> {
        let mut bytes = [0u8; 32];
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| TokenError::Random(errno.into()))?;
        }
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token in a file, which is made with a new one where it is not there.
    ///
    /// # Errors
    /// It cannot be read or made, or others could read it.
    pub fn of_file(path: &Path) -> Result<Token, TokenError> {
        let shown = path.display().to_string();
        let failed = |source| TokenError::File { path: shown.clone(), source };
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                let token = Token::new()?;
                file.write_all(format!("{}\n", token.0).as_bytes()).map_err(failed)?;
                return Ok(token);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        // Not blocking: it may be a FIFO.
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || !own || metadata.mode() & 0o077 != 0 {
            return Err(TokenError::Open { path: shown });
        }
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text).map_err(failed)?;
        Token::checked(&text, &shown)
    }

    /// The token, for its owner.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether a header says this token. Takes as long wherever a wrong one differs.
    pub fn is_in(&self, header: Option<&[u8]>) -> bool {
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
    fn a_header_is_compared_as_a_whole() {
        let token = Token::of_variable("0123456789abcdef").unwrap();
        assert!(token.is_in(Some(b"Bearer 0123456789abcdef")) && token.is_in(Some(b"bearer 0123456789abcdef")));
        for wrong in
            [&b""[..], b"Bearer ", b"Bearer 0123456789abcdeX", b"Bearer 0123456789abcde", b"Basic  0123456789abcdef"]
        {
            assert!(!token.is_in(Some(wrong)), "{wrong:?}");
        }
        assert!(!token.is_in(None));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn a_file_is_made_for_its_owner_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let token = Token::of_file(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!((Token::of_file(&path).unwrap() == token, token.text().len()), (true, 64));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::of_file(&path).unwrap_err().to_string().contains("hint: chmod 600"));
        std::fs::write(&path, "short").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(Token::of_file(&path), Err(TokenError::Weak { .. })));
    }

    #[test]
    fn two_new_ones_differ() {
        assert!(Token::new().unwrap() != Token::new().unwrap());
    }
}

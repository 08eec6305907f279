//! Tarballs as far as every container runtime reads them alike: without their compression, and no more of them than a bound.
//!
//! What is compressed otherwise than by gzip is refused: who else decompresses it knows no bound.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::failure::{FailedStep, Failure};

/// What a root may hold in all, bytes: enough for every image that people work with.
pub(crate) const LARGEST: u64 = 16 << 30;

/// A tarball without its compression.
pub(crate) enum Plain<R> {
    /// It had none.
    As(BufReader<R>),
    /// gzip's.
    Gzip(MultiGzDecoder<BufReader<R>>),
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::As(source) => source.read(buf),
            Plain::Gzip(source) => source.read(buf),
        }
    }
}

/// Looks how a tarball is compressed. `path` is for people.
///
/// # Errors
/// It cannot be read, or is compressed by something else, with the command that helps.
pub(crate) fn plain<R: Read>(source: R, path: &Path) -> Result<Plain<R>, Failure> {
    let refused = |message, hint: String| Failure::new(FailedStep::Image, message).hint(hint);
    let mut source = BufReader::with_capacity(1 << 16, source);
    let start = source.fill_buf().map_err(|error| {
        refused(format!("cannot read {}: {error}", path.display()), "name a tarball that this user can read".into())
    })?;
    let other = |name: &str, command: &str| {
        let message = format!("{} is compressed with {name}, which is not read here", path.display());
        Err(refused(message, format!("{command} {}", path.display())))
    };
    match start {
        [0x1f, 0x8b, ..] => Ok(Plain::Gzip(MultiGzDecoder::new(source))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => other("zstd", "zstd -d"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => other("xz", "xz -dk"),
        [b'B', b'Z', b'h', ..] => other("bzip2", "bzip2 -dk"),
        _ => Ok(Plain::As(source)),
    }
}

/// Copies no more than `most` bytes.
///
/// # Errors
/// There are more ([`io::ErrorKind::FileTooLarge`]), or reading or writing failed.
pub(crate) fn copy(source: &mut impl Read, to: &mut (impl Write + ?Sized), most: u64) -> io::Result<()> {
    let mut bounded = source.take(most);
    io::copy(&mut bounded, to)?;
    if bounded.limit() == 0 && bounded.into_inner().read(&mut [0])? > 0 {
        return Err(too_large(most));
    }
    Ok(())
}

/// Says the bound.
pub(crate) fn too_large(most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it holds more than the {most} bytes that a root may have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_little_gzip_becomes_is_bounded_and_other_compressions_are_refused() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&vec![0; 1 << 20]).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 4096);
        let open = || plain(&packed[..], Path::new("a.tar.gz")).unwrap();
        let mut out = Vec::new();
        copy(&mut open(), &mut out, 1 << 20).unwrap();
        assert_eq!(out.len(), 1 << 20, "the twin: as much as may be");
        let mut out = Vec::new();
        let error = copy(&mut open(), &mut out, (1 << 20) - 1).unwrap_err();
        assert!(error.kind() == io::ErrorKind::FileTooLarge && error.to_string().contains("1048575 bytes"), "{error}");
        assert_eq!(out.len(), (1 << 20) - 1);
        for (start, command) in
            [(&b"\xfd7zXZ\0"[..], "xz -dk /a"), (b"BZh9", "bzip2 -dk /a"), (b"\x28\xb5\x2f\xfd", "zstd -d /a")]
        {
            let failure = plain(start, Path::new("/a")).err().unwrap();
            assert_eq!(failure.hint.as_deref(), Some(command), "{}", failure.message);
        }
    }
}

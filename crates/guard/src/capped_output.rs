//! Two streams under one cap: the first bytes are kept, the rest is read and dropped. Decides nothing else.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_engine::{Output, Stream};

/// What is kept.
#[derive(Debug, Default)]
struct KeptOutput {
    streams: [Vec<u8>; 2],
    left: usize,
    truncated: bool,
}

/// Keeps the output of one run.
#[derive(Debug, Clone)]
pub(super) struct SharedOutput(Arc<Mutex<KeptOutput>>);

impl SharedOutput {
    /// So many bytes of both streams together.
    pub(crate) fn new(bytes: u64) -> SharedOutput {
        let left = usize::try_from(bytes).unwrap_or(usize::MAX);
        SharedOutput(Arc::new(Mutex::new(KeptOutput { left, ..KeptOutput::default() })))
    }

    /// For the run.
    pub(crate) fn output(&self) -> Output {
        let kept = Arc::clone(&self.0);
        Output::Stream(Box::new(move |stream, bytes| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = bytes.len().min(kept.left);
            kept.left -= taken;
            kept.truncated |= taken < bytes.len();
            kept.streams[usize::from(stream == Stream::Stderr)].extend_from_slice(&bytes[..taken]);
            Ok(bytes.len())
        }))
    }

    /// Standard output, standard error, and whether there was more; `cut` says that some of it never came here.
    pub(crate) fn take(&self, cut: bool) -> (String, String, bool) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let truncated = kept.truncated || cut;
        let [out, err] = std::mem::take(&mut kept.streams);
        (text(out, truncated), text(err, truncated), truncated)
    }
}

/// As text; a character that the cap has cut in two is left out.
fn text(mut bytes: Vec<u8>, cut: bool) -> String {
    if cut
        && let Err(e) = std::str::from_utf8(&bytes)
        && e.error_len().is_none()
    {
        bytes.truncate(e.valid_up_to());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_share_the_cap_and_no_character_is_halved() {
        let both = SharedOutput::new(6);
        let Output::Stream(mut receive) = both.output() else { unreachable!() };
        assert_eq!(receive(Stream::Stdout, b"abc").unwrap(), 3);
        assert_eq!(receive(Stream::Stderr, "d\u{e9}\u{e9}".as_bytes()).unwrap(), 5);
        assert_eq!(receive(Stream::Stdout, b"gone").unwrap(), 4);
        assert_eq!(both.take(false), ("abc".into(), "d\u{e9}".into(), true));
        let exact = SharedOutput::new(3);
        let Output::Stream(mut receive) = exact.output() else { unreachable!() };
        receive(Stream::Stdout, b"abc").unwrap();
        assert_eq!(exact.take(false), ("abc".into(), String::new(), false));
        let cut = SharedOutput::new(2);
        let Output::Stream(mut receive) = cut.output() else { unreachable!() };
        receive(Stream::Stdout, "a\u{e9}".as_bytes()).unwrap();
        assert_eq!(cut.take(false), ("a".into(), String::new(), true));
        let before = SharedOutput::new(2);
        let Output::Stream(mut receive) = before.output() else { unreachable!() };
        receive(Stream::Stdout, b"a\xc3").unwrap();
        assert_eq!(before.take(true), ("a".into(), String::new(), true));
    }
}

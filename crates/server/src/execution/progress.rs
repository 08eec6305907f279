//! What a call has to report while it runs: its output so far, and the slow steps before it starts.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_engine::{Output, Stream};

/// Most output in one progress notification, bytes. The number of further bytes is reported instead of them.
const MAX_FRESH: usize = 8 << 10;

/// What a call has to report while it runs.
#[derive(Debug, Default)]
pub(crate) struct CallProgress(Mutex<Unreported>);

#[derive(Debug, Default)]
struct Unreported {
    /// Bytes of output so far.
    bytes: u64,
    fresh: Vec<u8>,
    left_out: usize,
    step: Option<String>,
}

impl CallProgress {
    fn lock(&self) -> std::sync::MutexGuard<'_, Unreported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output.
    pub(crate) fn output(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.bytes += bytes.len() as u64;
        let room = MAX_FRESH - state.fresh.len().min(MAX_FRESH);
        state.fresh.extend_from_slice(&bytes[..bytes.len().min(room)]);
        state.left_out += bytes.len().saturating_sub(room);
    }

    /// Sets the slow step in progress.
    pub(crate) fn step(&self, text: &str) {
        self.lock().step = Some(text.to_owned());
    }

    /// Takes what was not reported yet: the number of output bytes so far, and the text. `None` if there is nothing new.
    pub(crate) fn take(&self) -> Option<(u64, String)> {
        let mut state = self.lock();
        let step = state.step.take();
        // An incomplete character at the end waits for its rest.
        let whole = match std::str::from_utf8(&state.fresh) {
            Err(error) if error.error_len().is_none() && state.left_out == 0 => error.valid_up_to(),
            _ => state.fresh.len(),
        };
        let rest = state.fresh.split_off(whole);
        let fresh = std::mem::replace(&mut state.fresh, rest);
        let left_out = std::mem::take(&mut state.left_out);
        let mut text = step.unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&fresh));
        if left_out > 0 {
            text.push_str(&format!("\n[{left_out} bytes of output left out here]\n"));
        }
        (!text.is_empty()).then_some((state.bytes, text))
    }
}

/// Collects streamed output, and reports it as progress meanwhile.
#[derive(Debug, Default)]
pub(crate) struct StreamedOutput(Arc<Mutex<[Vec<u8>; 2]>>);

impl StreamedOutput {
    /// The engine's output, which is collected here and reported to `progress`.
    pub(crate) fn output(&self, progress: Arc<CallProgress>) -> Output {
        let streams = Arc::clone(&self.0);
        Output::Stream(Box::new(move |stream, bytes| {
            let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
            streams[usize::from(stream == Stream::Stderr)].extend_from_slice(bytes);
            progress.output(bytes);
            Ok(bytes.len())
        }))
    }

    /// Takes the text of standard output and standard error.
    pub(crate) fn take(&self) -> (String, String) {
        let [out, err] = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_once_and_in_whole_characters() {
        let progress = CallProgress::default();
        assert_eq!(progress.take(), None);
        progress.output("a\u{e9}".as_bytes());
        assert_eq!(progress.take(), Some((3, "a\u{e9}".into())));
        progress.output(&[0xc3]);
        assert_eq!(progress.take(), None);
        progress.output(&[0xa9, b'!']);
        assert_eq!(progress.take(), Some((6, "\u{e9}!".into())));
        progress.output(&[0xff, b'x']);
        assert_eq!(progress.take(), Some((8, "\u{fffd}x".into())));
        progress.step("building");
        assert_eq!(progress.take(), Some((8, "building".into())));
        assert_eq!(progress.take(), None);
    }

    #[test]
    fn excess_output_is_reported_as_a_number() {
        let progress = CallProgress::default();
        progress.output(&vec![b'x'; MAX_FRESH + 10]);
        let (bytes, text) = progress.take().unwrap();
        assert_eq!(bytes, (MAX_FRESH + 10) as u64);
        assert!(text.ends_with("[10 bytes of output left out here]\n"), "{}", &text[text.len() - 60..]);
        assert_eq!(progress.take(), None);
    }
}

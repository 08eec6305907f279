//! The progress of pulling an image, on standard error: a bar on a terminal, otherwise one line for each step that begins.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_engine::progress::{Progress, ProgressCallback};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is shown now.
#[derive(Default)]
struct ShownProgress {
    what: String,
    bar: Option<ProgressBar>,
}

/// A callback that shows progress, unless `quiet`.
pub(crate) fn reporter(quiet: bool) -> ProgressCallback {
    let shown = Mutex::new(ShownProgress::default());
    Arc::new(move |progress: Progress| {
        if !quiet {
            show(&mut shown.lock().unwrap_or_else(PoisonError::into_inner), &progress);
        }
    })
}

fn show(shown: &mut ShownProgress, progress: &Progress) {
    let terminal = rustix::termios::isatty(std::io::stderr());
    if shown.what != progress.what {
        if let Some(bar) = shown.bar.take() {
            bar.finish_and_clear();
        }
        shown.what.clone_from(&progress.what);
        if terminal {
            shown.bar = Some(bar(progress));
        } else {
            // A closed standard error only hides the progress.
            drop(writeln!(std::io::stderr(), "cofferdam: {}", progress.what));
        }
    }
    let Some(bar) = &shown.bar else { return };
    if let Some(total) = progress.total {
        bar.set_length(total);
    }
    bar.set_position(progress.done);
    if progress.total.is_some_and(|total| progress.done >= total) {
        bar.finish_and_clear();
        (shown.bar, shown.what) = (None, String::new());
    }
}

fn bar(progress: &Progress) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(progress.total, ProgressDrawTarget::stderr());
    let known = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}";
    let unknown = "{msg} {spinner} {bytes}";
    let style = ProgressStyle::with_template(if progress.total.is_some() { known } else { unknown });
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.with_message(progress.what.clone())
}

//! What the limits of its caller mean for a process that does nothing but run sandboxes.

use cofferdam_confine::signals;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open descriptors as far as it goes, lives on where a file would be larger than the limit, and can wait
/// for its children even if its caller ignores SIGCHLD.
pub fn adapt() {
    // A record that has no room in its file is an error that is said; by default the signal ends the process without a word.
    signals::ignore_file_size_limit();
    signals::wait_for_children();
    raise_open_files();
}

/// Raises this process's soft limit of open descriptors to its hard limit.
///
/// Descriptors that a user's processes have sent and not yet received count together against the soft limit of the one that
/// sends (`ETOOMANYREFS`, unix(7)): with an ordinary one of 1,024, one sandbox could keep all others of its user from
/// starting. A sandbox has the limit of its policy. What the system refuses stays as it is.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // No more than this is ever needed, and a program that closes all it may have open takes long over millions.
    const ENOUGH: u64 = 1 << 16;
    let raised = limit.maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if limit.current.is_some_and(|current| current < raised) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
        raised.unwrap_or(()); // with the old limit only the number of sandboxes at once is smaller
    }
}

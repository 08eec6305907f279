//! Init in the place of a program that nsjail starts: it waits until the owner has looked at what is mounted, and becomes the
//! program.
//!
//! It runs with the filter, the limits and the user that are the program's. It has nothing to report on but the socket on
//! which it waits, and asks for no system call that a program could do without.

use crate::sys::{self, Str};
use crate::uapi::*;

/// `hold INIT REACHED GO PATH ARGUMENTS…`: descriptors of init's program, of a pipe and of a socket; the program and what it
/// is to see as its arguments.
const FIRST: usize = 2;
/// As many words as that takes at least.
const LEAST: usize = FIRST + 5;

/// Whether these are the words. The path of a container's socket, which is the other use of an argument, begins with `/`.
pub fn is_meant(words: *const Str, count: usize) -> bool {
    // SAFETY: the caller passes as many strings, which end in NUL.
    count >= LEAST && (0..5).all(|i| unsafe { *(*words.add(1)).add(i) == c"hold".to_bytes_with_nul()[i] })
}

/// Waits, and becomes the program. `variables` are its own as they are.
pub fn wait(words: *const Str, variables: *const Str) -> ! {
    // SAFETY: there are at least `LEAST` words, each a string that ends in NUL.
    let number = |i: usize| decimal(unsafe { *words.add(FIRST + i) });
    let (init, reached, go) = (number(0), number(1), number(2));
    let mut byte = 0u8;
    // The owner sees on the pipe that it has been read from: every mount is made, and this process waits. It answers by one
    // byte, and by none where the program may not start or the owner is gone.
    if sys::read(reached, &raw mut byte, 1) != Ok(1) || sys::read(go, &raw mut byte, 1) != Ok(1) {
        sys::exit(1)
    }
    let execute = || -> Result<(), i32> {
        sys::close(init)?;
        sys::close(reached)?;
        sys::fcntl(go, F_SETFD, FD_CLOEXEC)?;
        // SAFETY: as above; the words end in a null pointer, and so do those from the sixth on.
        let (path, arguments) = unsafe { (*words.add(FIRST + 3), words.add(FIRST + 4)) };
        sys::execve(path, arguments, variables).map(|_| ())
    };
    let errno = execute().err().unwrap_or(0).to_ne_bytes();
    // An owner that is gone reads no answer.
    let _sent = sys::write(go, errno.as_ptr(), errno.len());
    sys::exit(127)
}

/// A descriptor's number, of our own writing.
fn decimal(text: Str) -> i32 {
    let (mut number, mut i) = (0i32, 0);
    loop {
        // SAFETY: the string ends in NUL, and nothing behind it is read.
        let digit = unsafe { *text.add(i) };
        if !digit.is_ascii_digit() {
            return number;
        }
        number = number.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
        i += 1;
    }
}

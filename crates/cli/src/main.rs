//! The `cofferdam` command. Everything is in the library; this only ends the process with its exit code.
#![forbid(unsafe_code)]

fn main() {
    cofferdam_engine::process_limits::adapt();
    std::process::exit(cofferdam::entry(std::env::args_os().collect()));
}

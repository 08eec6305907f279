//! `cofferdam-compile`: reads one request on standard input, and answers on standard output. The library does the work.
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};

/// Most bytes of a request.
const MAX_REQUEST: u64 = 16 << 20;

fn main() {
    if std::env::args_os().len() > 1 {
        eprintln!(
            "cofferdam-compile {}: evaluates profiles for the cofferdam command, which speaks to it on standard input",
            env!("CARGO_PKG_VERSION")
        );
        std::process::exit(125);
    }
    let mut text = Vec::new();
    let read = std::io::stdin().lock().take(MAX_REQUEST + 1).read_to_end(&mut text);
    let mut out = std::io::stdout();
    let answered = match read {
        Ok(_) if text.len() as u64 > MAX_REQUEST => Err(format!("the request is longer than {MAX_REQUEST} bytes")),
        Ok(_) => cofferdam_compile::serve(&text, &mut out),
        Err(error) => Err(format!("cannot read the request: {error}")),
    };
    if let Err(message) = answered {
        let line = serde_json::json!({ "refused": message });
        if writeln!(out, "{line}").is_err() {
            eprintln!("cofferdam-compile: {message}");
        }
        std::process::exit(125);
    }
    // Freeing a large heap would only take time.
    std::process::exit(0);
}

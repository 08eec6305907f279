//! The first line of a script: which interpreter the kernel starts, and what env(1) starts in turn. Pure.

/// The interpreter of a script and its one argument, as execve(2) reads them.
pub fn interpreter(head: &[u8]) -> Option<(String, String)> {
    let line = head.get(2..)?.split(|&b| b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let (interpreter, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    (!interpreter.is_empty()).then(|| (interpreter.to_owned(), argument.trim().to_owned()))
}

/// What env(1) starts: the first word that is neither an option nor an assignment.
pub fn started_by_env(argument: &str) -> Option<String> {
    let mut words = argument.split_ascii_whitespace();
    words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned)
}

//! What a failed program complains of in its output, in the words of the C library and of common tools. Pure: text in,
//! complaints out.
//!
//! A mount, a rule of Landlock and a limit of the kernel refuse without a record, and only a trace reports them. So the notes
//! repeat what the program said; it is no violation, and nothing is decided by it.

/// What a program can complain of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComplaintKind {
    /// EROFS.
    ReadOnly,
    /// A name that does not resolve, or a network that is not there.
    NoNetwork,
    /// ECONNREFUSED.
    ConnectionRefused,
    /// A server that cannot listen.
    NoListening,
    /// EACCES or EPERM.
    Permission,
    /// EBUSY.
    Busy,
    /// ENOSPC.
    NoSpace,
    /// EMFILE.
    OpenFiles,
    /// A process or thread that cannot be made.
    NoProcess,
    /// EAFNOSUPPORT.
    SocketFamily,
    /// Input that ended where a line was expected.
    NoInput,
    /// A shared library that the loader does not find.
    NoLibrary,
    /// A module that an interpreter does not find.
    NoModule,
    /// A program that a shell does not find.
    NoProgram,
    /// ENOENT.
    NoFile,
    /// The socket of Docker's daemon.
    Docker,
    /// The name and address that git writes into a commit.
    GitIdentity,
    /// A repository that git takes for somebody else's.
    GitOwner,
}

/// The words, and what they mean; the more specific ones first.
const WORDS: &[(&str, ComplaintKind)] = &[
    (": cannot open shared object file", ComplaintKind::NoLibrary),
    ("Cannot connect to the Docker daemon", ComplaintKind::Docker),
    ("detected dubious ownership in repository", ComplaintKind::GitOwner),
    ("unable to auto-detect email address", ComplaintKind::GitIdentity),
    ("empty ident name", ComplaintKind::GitIdentity),
    ("Read-only file system", ComplaintKind::ReadOnly),
    ("read-only file system", ComplaintKind::ReadOnly),
    ("E212: Can't open file for writing", ComplaintKind::ReadOnly),
    // ImageMagick does not say why.
    ("WriteBlob Failed", ComplaintKind::ReadOnly),
    ("EROFS", ComplaintKind::ReadOnly),
    ("LocalRepositoryNotAccessible", ComplaintKind::ReadOnly),
    ("listen EACCES", ComplaintKind::NoListening),
    ("listen EPERM", ComplaintKind::NoListening),
    ("Could not resolve host", ComplaintKind::NoNetwork),
    ("Temporary failure in name resolution", ComplaintKind::NoNetwork),
    ("Temporary failure resolving", ComplaintKind::NoNetwork),
    ("Name or service not known", ComplaintKind::NoNetwork),
    ("Network is unreachable", ComplaintKind::NoNetwork),
    ("unable to resolve host address", ComplaintKind::NoNetwork),
    ("failed to lookup address information", ComplaintKind::NoNetwork),
    ("dial udp: lookup", ComplaintKind::NoNetwork),
    ("dial tcp: lookup", ComplaintKind::NoNetwork),
    ("All attempts to connect to", ComplaintKind::NoNetwork),
    ("No matching distribution found", ComplaintKind::NoNetwork),
    ("EAI_AGAIN", ComplaintKind::NoNetwork),
    ("ENETUNREACH", ComplaintKind::NoNetwork),
    ("ENOTFOUND", ComplaintKind::NoNetwork),
    ("Connection refused", ComplaintKind::ConnectionRefused),
    ("ECONNREFUSED", ComplaintKind::ConnectionRefused),
    ("Address family not supported", ComplaintKind::SocketFamily),
    ("EAFNOSUPPORT", ComplaintKind::SocketFamily),
    ("Device or resource busy", ComplaintKind::Busy),
    ("EBUSY", ComplaintKind::Busy),
    ("No space left on device", ComplaintKind::NoSpace),
    ("no space left on device", ComplaintKind::NoSpace),
    ("ENOSPC", ComplaintKind::NoSpace),
    ("Too many open files", ComplaintKind::OpenFiles),
    ("EMFILE", ComplaintKind::OpenFiles),
    ("Cannot fork", ComplaintKind::NoProcess),
    ("can't start new thread", ComplaintKind::NoProcess),
    ("fork: Resource temporarily unavailable", ComplaintKind::NoProcess),
    ("fork: retry", ComplaintKind::NoProcess),
    ("EOF when reading a line", ComplaintKind::NoInput),
    ("Permission denied", ComplaintKind::Permission),
    ("permission denied", ComplaintKind::Permission),
    ("EACCES", ComplaintKind::Permission),
    ("ModuleNotFoundError: No module named", ComplaintKind::NoModule),
    ("command not found", ComplaintKind::NoProgram),
    (": not found", ComplaintKind::NoProgram),
    ("No such file or directory", ComplaintKind::NoFile),
    (": No such file", ComplaintKind::NoFile),
    ("ENOENT", ComplaintKind::NoFile),
];

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// What it is about.
    pub kind: ComplaintKind,
    /// The path or name that stands in it.
    pub object: Option<String>,
}

/// Most complaints that are looked at.
const MOST: usize = 64;

/// The complaints in the lines of a program's output.
pub fn complaints(lines: impl Iterator<Item = String>) -> Vec<Complaint> {
    lines.filter_map(|line| complaint(&line)).take(MOST).collect()
}

/// The complaint of one line.
fn complaint(line: &str) -> Option<Complaint> {
    let (word, kind) = WORDS.iter().find(|(word, _)| line.contains(word))?;
    let (before, behind) = line.split_once(word)?;
    Some(Complaint { kind: *kind, object: object(before, behind) })
}

/// The path or name that a complaint is about: in quotes, or the last part before the words.
fn object(before: &str, behind: &str) -> Option<String> {
    let quotes = [('\'', '\''), ('"', '"'), ('‘', '’'), ('`', '\'')];
    let in_quotes = |text: &str| {
        quotes.iter().find_map(|(open, close)| {
            let (_, rest) = text.rsplit_once(*open).filter(|_| open != close).or_else(|| {
                let (head, _) = text.rsplit_once(*close)?;
                let from = head.rfind(*open)? + open.len_utf8();
                Some(("", &text[from..]))
            })?;
            let end = rest.find(*close)?;
            Some(rest[..end].to_owned()).filter(|name| !name.is_empty())
        })
    };
    if let Some(name) = in_quotes(before).or_else(|| in_quotes(behind)) {
        return Some(name);
    }
    let last = |text: &str| {
        let part = text.trim_end().trim_end_matches(':').rsplit(": ").next()?;
        Some(part.rsplit(' ').next()?.to_owned()).filter(|name| !name.is_empty())
    };
    // Go and others name the path last, behind a word for what they did.
    last(before).filter(|name| !name.is_empty()).or_else(|| behind.trim_start().strip_prefix(", ").and_then(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_complaint_is_found_in_the_words_of_common_tools() {
        use ComplaintKind::*;
        for (line, kind, object) in [
            ("touch: cannot touch '../a b': Read-only file system", ReadOnly, Some("../a b")),
            ("touch: cannot touch ‘a’: Read-only file system", ReadOnly, Some("a")),
            (
                "convert: WriteBlob Failed `out.png' @ error/png.c/MagickPNGErrorHandler/1645.",
                ReadOnly,
                Some("out.png"),
            ),
            (
                "sh: 1: cannot create .git/hooks/pre-commit: Read-only file system",
                ReadOnly,
                Some(".git/hooks/pre-commit"),
            ),
            ("OSError: [Errno 30] Read-only file system: '/project/a'", ReadOnly, Some("/project/a")),
            ("Error: EROFS: read-only file system, open '/x/y'", ReadOnly, Some("/x/y")),
            (
                "fatal: Unable to create '/r/.git/worktrees/t/index.lock': Read-only file system",
                ReadOnly,
                Some("/r/.git/worktrees/t/index.lock"),
            ),
            ("\"notes.txt\" E212: Can't open file for writing", ReadOnly, Some("notes.txt")),
            ("sh: 1: /tmp/t: Permission denied", Permission, Some("/tmp/t")),
            ("cat: /home/u/.tool/conf: Permission denied", Permission, Some("/home/u/.tool/conf")),
            ("rm: cannot remove '.vscode': Device or resource busy", Busy, Some(".vscode")),
            ("dd: error writing '/tmp/big': No space left on device", NoSpace, Some("/tmp/big")),
            ("OSError: [Errno 24] Too many open files: '/dev/null'", OpenFiles, Some("/dev/null")),
            ("sh: 0: Cannot fork", NoProcess, Some("0")),
            ("ModuleNotFoundError: No module named 'six'", NoModule, Some("six")),
            (
                "./app: error while loading shared libraries: libf.so: cannot open shared object file: No such file",
                NoLibrary,
                Some("libf.so"),
            ),
            ("fatal: detected dubious ownership in repository at '/p/tree'", GitOwner, Some("/p/tree")),
            ("sh: 1: git: not found", NoProgram, Some("git")),
            ("bash: line 1: git: command not found", NoProgram, Some("git")),
            ("sh: 1: cannot open /dev/kvm: No such file", NoFile, Some("/dev/kvm")),
        ] {
            let object = object.map(str::to_owned);
            assert_eq!(complaint(line), Some(Complaint { kind, object }), "{line}");
        }
        assert_eq!(complaint("all is well"), None);
    }

    #[test]
    fn no_text_is_too_odd_to_be_read() {
        for odd in ["'", "''", "': EROFS", "EROFS '", "‘: EROFS", "’‘: EROFS: ’", ": EROFS", "EROFS, ", "` EROFS"]
        {
            complaint(odd);
        }
    }
}

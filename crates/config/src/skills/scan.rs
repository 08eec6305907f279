//! The static scan: finds content that skills must not have, by its bytes.
//!
//! | rule | finds |
//! |---|---|
//! | `private-key` | a PEM or OpenPGP private key, or an Ethereum keystore |
//! | `setuid` | a file with the set-user-id or set-group-id bit |
//! | `elf-as-script` | a program in machine code whose name says that it is a text |
//! | `secret` | an access token of a known provider, by its form |
//!
//! The list is short on purpose: it catches accidents, and not authors who hide something. The sandbox enforces what a skill may do,
//! not this. Pure; never reports the secret itself.

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// The line, from 1; `None` for the whole file.
    pub line: Option<u64>,
    /// A description, without the content itself.
    pub what: &'static str,
}

/// File name extensions of texts.
const TEXTS: &[&str] = &[
    "bash", "cjs", "css", "csv", "html", "js", "json", "jsx", "lua", "md", "mjs", "php", "pl", "py", "rb", "rs", "sh",
    "sql", "toml", "ts", "tsx", "txt", "xml", "yaml", "yml", "zsh",
];

/// Tokens: the prefix, the least number of following characters, and those allowed besides letters and digits.
const TOKENS: &[(&str, usize, &str, &str)] = &[
    ("AKIA", 16, "", "an AWS access key"),
    ("ASIA", 16, "", "an AWS access key"),
    ("AIza", 35, "_-", "a Google API key"),
    ("ghp_", 36, "", "a GitHub token"),
    ("gho_", 36, "", "a GitHub token"),
    ("ghu_", 36, "", "a GitHub token"),
    ("ghs_", 36, "", "a GitHub token"),
    ("ghr_", 36, "", "a GitHub token"),
    ("github_pat_", 22, "_", "a GitHub token"),
    ("glpat-", 20, "_-", "a GitLab token"),
    ("npm_", 36, "", "an npm token"),
    ("sk-ant-", 20, "_-", "an Anthropic API key"),
    ("sk-proj-", 20, "_-", "an OpenAI API key"),
    ("sk_live_", 16, "", "a Stripe key"),
    ("rk_live_", 16, "", "a Stripe key"),
    ("xoxb-", 10, "-", "a Slack token"),
    ("xoxp-", 10, "-", "a Slack token"),
    ("xoxa-", 10, "-", "a Slack token"),
    ("xoxr-", 10, "-", "a Slack token"),
    ("xoxs-", 10, "-", "a Slack token"),
];

/// Most findings of one file, which is refused in any case.
const MOST: usize = 20;

/// The findings in a file of that path, mode (`st_mode`) and content.
pub(crate) fn scan(path: &str, mode: u32, bytes: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    if mode & 0o6000 != 0 {
        found.push(Finding { rule: "setuid", line: None, what: "it has the set-user-id or set-group-id bit" });
    }
    let ending = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, ending)| ending);
    let text = ending.is_some_and(|ending| TEXTS.iter().any(|known| known.eq_ignore_ascii_case(ending)));
    if text && bytes.starts_with(b"\x7fELF") {
        found.push(Finding { rule: "elf-as-script", line: None, what: "it is machine code under the name of a text" });
    }
    if [&b"\"kdf\""[..], b"\"ciphertext\"", b"\"mac\""].iter().all(|key| has(bytes, key)) {
        found.push(Finding { rule: "private-key", line: None, what: "an Ethereum keystore" });
    }
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let mut add = |rule, what| {
            if found.len() < MOST {
                found.push(Finding { rule, line: Some(index as u64 + 1), what });
            }
        };
        if let Some(begin) = position(line, b"-----BEGIN ")
            && has(&line[begin..], b"PRIVATE KEY")
        {
            add("private-key", "a private key");
        }
        for (prefix, least, besides, what) in TOKENS {
            if has_token(line, prefix.as_bytes(), *least, besides.as_bytes()) {
                add("secret", what);
            }
        }
    }
    found
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn has(text: &[u8], part: &[u8]) -> bool {
    position(text, part).is_some()
}

fn has_token(line: &[u8], prefix: &[u8], least: usize, besides: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = position(&line[from..], prefix).map(|at| at + from) {
        from = at + 1;
        let alone = at == 0 || !line[at - 1].is_ascii_alphanumeric();
        let rest = &line[at + prefix.len()..];
        let run = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || besides.contains(byte)).count();
        if alone && run >= least {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::scan;

    fn rules(path: &str, mode: u32, bytes: &[u8]) -> Vec<(&'static str, Option<u64>)> {
        scan(path, mode, bytes).into_iter().map(|finding| (finding.rule, finding.line)).collect()
    }

    #[test]
    fn each_rule_finds_its_pattern_and_spares_a_similar_one() {
        let token = |prefix: &str, more: usize| format!("x = '{prefix}{}'\n", "a1B2".repeat(20).split_at(more).0);
        let pem = |kind: &str| format!("a\nb\n  k = '-----BEGIN {kind}-----'\n");
        for (bytes, found) in [
            (pem("PRIVATE KEY"), vec![("private-key", Some(3))]),
            (pem("OPENSSH PRIVATE KEY"), vec![("private-key", Some(3))]),
            (pem("PGP PRIVATE KEY BLOCK"), vec![("private-key", Some(3))]),
            (pem("PUBLIC KEY"), vec![]),
            (pem("CERTIFICATE"), vec![]),
            (token("AKIA", 16), vec![("secret", Some(1))]),
            (token("AKIA", 15), vec![]),
            (token("xAKIA", 16), vec![]),
            (token("ghp_", 36), vec![("secret", Some(1))]),
            (token("ghp_", 35), vec![]),
            (token("sk-ant-", 20), vec![("secret", Some(1))]),
            (r#"{"crypto":{"kdf":"scrypt","ciphertext":"","mac":""}}"#.into(), vec![("private-key", None)]),
            (r#"{"crypto":{"kdf":"scrypt"}}"#.into(), vec![]),
            ("import os\nprint(os.environ)\n".into(), vec![]),
        ] {
            assert_eq!(rules("main.py", 0o644, bytes.as_bytes()), found, "{bytes}");
        }
    }

    #[test]
    fn bits_and_machine_code_count_where_they_deceive() {
        assert_eq!(rules("a", 0o104_755, b""), [("setuid", None)]);
        assert_eq!(rules("a", 0o102_755, b""), [("setuid", None)]);
        assert_eq!(rules("a", 0o101_755, b""), []);
        let elf = b"\x7fELF\x02\x01\x01rest";
        assert_eq!(rules("bin/tool", 0o755, elf), []);
        assert_eq!(rules("lib/native.so", 0o755, elf), []);
        for path in ["main.py", "x/MAIN.SH", "a.so.txt"] {
            assert_eq!(rules(path, 0o755, elf), [("elf-as-script", None)], "{path}");
        }
    }

    #[test]
    fn what_is_found_is_bounded_and_never_the_secret_itself() {
        let many = format!("AKIA{}\n", "A".repeat(16)).repeat(1000);
        let found = scan("a", 0o644, many.as_bytes());
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|finding| !finding.what.contains("AAAA")));
    }
}

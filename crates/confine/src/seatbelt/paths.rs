//! The links that macOS itself has at its root, resolved by text: Seatbelt compares canonical paths only.

/// Link and where it leads, of every macOS installation.
const LINKS: [(&str, &str); 3] = [("/etc", "/private/etc"), ("/tmp", "/private/tmp"), ("/var", "/private/var")];

/// The path as Seatbelt sees it. Other links are resolved by a caller that can read the file system.
pub fn canonical(path: &str) -> String {
    for (link, target) in LINKS {
        if let Some(rest) = path.strip_prefix(link)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return format!("{target}{rest}");
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn links_at_the_root_are_resolved_and_their_siblings_are_not() {
        assert_eq!(canonical("/tmp"), "/private/tmp");
        assert_eq!(canonical("/var/folders/x"), "/private/var/folders/x");
        assert_eq!(canonical("/variable"), "/variable");
        assert_eq!(canonical("/private/tmp/x"), "/private/tmp/x");
    }
}

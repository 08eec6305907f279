//! The media type of a file, by its content. A name only distinguishes kinds of text.

/// Largest text that a result embeds, bytes. A result links to a larger one.
const LARGEST_TEXT: usize = 256 << 10;

/// The media type of a file, and how a result returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MediaType {
    /// An image, which is embedded.
    Image(&'static str),
    /// A text, which is embedded.
    Text(&'static str),
    /// Anything else, which is linked to.
    Other(&'static str),
}

impl MediaType {
    /// The type's name.
    pub(crate) fn name(&self) -> &'static str {
        let (MediaType::Image(name) | MediaType::Text(name) | MediaType::Other(name)) = self;
        name
    }

    /// The same type, returned as a link.
    pub(crate) fn linked(self) -> MediaType {
        MediaType::Other(self.name())
    }
}

/// The media type of a file, by its first bytes. `name` only tells kinds of text apart.
pub(crate) fn media_type(name: &str, bytes: &[u8]) -> MediaType {
    const MAGIC: &[(&[u8], MediaType)] = &[
        (b"\x89PNG\r\n\x1a\n", MediaType::Image("image/png")),
        (b"\xff\xd8\xff", MediaType::Image("image/jpeg")),
        (b"GIF87a", MediaType::Image("image/gif")),
        (b"GIF89a", MediaType::Image("image/gif")),
        (b"%PDF-", MediaType::Other("application/pdf")),
        (b"PK\x03\x04", MediaType::Other("application/zip")),
        (b"\x1f\x8b", MediaType::Other("application/gzip")),
    ];
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return kind.clone();
    }
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')) else {
        return MediaType::Other("application/octet-stream");
    };
    if is_svg(text) {
        return MediaType::Image("image/svg+xml");
    }
    let extension = name.rsplit('/').next().unwrap_or(name).rsplit_once('.').map_or("", |(_, end)| end);
    let kind = match extension.to_ascii_lowercase().as_str() {
        "json" if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => "application/json",
        "csv" => "text/csv",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "xml" => "text/xml",
        _ => "text/plain",
    };
    if bytes.len() > LARGEST_TEXT { MediaType::Other(kind) } else { MediaType::Text(kind) }
}

/// Whether a text is an SVG document: its first element, after any prolog, is `svg`.
fn is_svg(text: &str) -> bool {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("<?") => "?>",
            _ if rest.starts_with("<!--") => "-->",
            _ if rest.starts_with("<!DOCTYPE svg") => ">",
            _ => break,
        };
        let Some((_, after)) = rest.split_once(end) else { return false };
        rest = after.trim_start();
    }
    rest.strip_prefix("<svg").is_some_and(|after| after.starts_with([' ', '>', '\n', '\t', '\r', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_depends_on_content_and_not_on_the_name() {
        for (name, bytes, expected) in [
            ("a.txt", &b"\x89PNG\r\n\x1a\nrest"[..], MediaType::Image("image/png")),
            ("a.png", b"no picture", MediaType::Text("text/plain")),
            ("p", b"\xff\xd8\xff\xe0", MediaType::Image("image/jpeg")),
            ("p", b"GIF89a", MediaType::Image("image/gif")),
            ("p.svg", b"<svg", MediaType::Text("text/plain")),
            ("p", b"<?xml version=\"1.0\"?>\n<!-- x --><svg xmlns='a'/>", MediaType::Image("image/svg+xml")),
            ("p.html", b"<html><svg/></html>", MediaType::Text("text/html")),
            ("a.json", b"{\"a\": 1}", MediaType::Text("application/json")),
            ("a.json", b"{\"a\": ", MediaType::Text("text/plain")),
            ("a/b.csv", b"1,2", MediaType::Text("text/csv")),
            ("a", b"x\0y", MediaType::Other("application/octet-stream")),
            ("a", b"\xff\xfe", MediaType::Other("application/octet-stream")),
            ("a", b"%PDF-1.7", MediaType::Other("application/pdf")),
            ("a", b"", MediaType::Text("text/plain")),
        ] {
            assert_eq!(media_type(name, bytes), expected, "{name} {bytes:?}");
        }
        assert_eq!(media_type("a", &vec![b'x'; LARGEST_TEXT + 1]), MediaType::Other("text/plain"));
    }
}

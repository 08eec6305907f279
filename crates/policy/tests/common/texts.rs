//! What must hold of any text where a policy says something of the network. Shared by the properties of this crate and a
//! fuzz target; panics where something does not hold.

use cofferdam_policy::host::{UrlHost, host_name};
use cofferdam_policy::{AllowEntry, DenyEntry, HttpUrl, Ports, webpath};

/// What is read is written in one form, which reads back as the same.
pub(crate) fn hold(text: &str) {
    if let Ok(entry) = text.parse::<AllowEntry>() {
        assert_eq!(entry.to_string().parse::<AllowEntry>().as_ref(), Ok(&entry), "{text:?}");
        assert!(!entry.matches_name("", 443) && !entry.matches_name("localhost", 443) && entry.covers(&entry));
        assert!(!entry.ports.contains(0) && !entry.ports.ranges().is_empty());
    }
    if let Ok(entry) = text.parse::<DenyEntry>() {
        assert_eq!(entry.to_string().parse::<DenyEntry>().as_ref(), Ok(&entry), "{text:?}");
    }
    if let Ok(ports) = Ports::parse(text) {
        assert_eq!(Ports::parse(&ports.to_string()).as_ref(), Ok(&ports), "{text:?}");
        assert!(ports.ranges().windows(2).all(|pair| u32::from(pair[0].1) + 1 < u32::from(pair[1].0)), "{text:?}");
        assert!(Ports::all().covers(&ports) && ports.covers(&ports));
    }
    if let Ok(name) = host_name(text) {
        assert!(name.is_ascii() && name.len() <= 253 && !name.ends_with('.') && name == name.to_ascii_lowercase());
        assert_eq!(host_name(&format!("{name}.")).as_ref(), Ok(&name), "{text:?}");
        assert_eq!(host_name(&name.to_ascii_uppercase()).as_ref(), Ok(&name), "{text:?}");
        assert_eq!(name.parse::<UrlHost>(), Ok(UrlHost::Name(name)), "{text:?}");
    }
    if let Ok(url) = text.parse::<HttpUrl>() {
        assert_eq!(url.to_text().parse::<HttpUrl>().as_ref(), Ok(&url), "{text:?}");
        let shown = url.to_string();
        let password = url.credentials.as_deref().and_then(|pair| pair.split_once(':')).map(|(_, password)| password);
        // A password of a few letters may stand in the host's name by chance.
        assert!(
            password.is_none_or(|password| password.len() < 6 || !shown.contains(password)) || shown == url.to_text()
        );
    }
    if webpath::pattern_fault(text).is_none() {
        let path = text.strip_suffix('*').unwrap_or(text);
        assert_eq!(webpath::fault(path), None);
        assert!(webpath::matches(text, path));
    }
    if webpath::fault(text).is_none() {
        assert!(webpath::matches("/*", text) && webpath::matches(text, text), "{text:?}");
        assert!(text.split('/').all(|segment| segment != "." && segment != ".."));
    }
}

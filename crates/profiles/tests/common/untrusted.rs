//! Properties of any bytes parsed as a request, an answer, an id or an assignment, for the property tests of this crate and the fuzz
//! targets of the same names. Panics if one is violated.

use std::path::{Component, Path};

use cofferdam_profiles::overrides;
use cofferdam_profiles::protocol::{EvaluatorMessage, EvaluatorRequest};
use cofferdam_profiles::store::{Id, ProfileStore, Stored};

/// Requests and answers: parsing never panics, and accepted input is encoded as itself.
pub(crate) fn protocol(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<EvaluatorRequest>(bytes) {
        let text = serde_json::to_vec(&request).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<EvaluatorRequest>(&text).expect("what was written can be read"), request);
    }
    if let Ok(line) = serde_json::from_slice::<EvaluatorMessage>(bytes) {
        let text = serde_json::to_string(&line).expect("what was read can be written");
        assert!(!text.contains('\n'), "an answer is one line");
        assert_eq!(serde_json::from_str::<EvaluatorMessage>(&text).expect("what was written can be read"), line);
    }
}

/// Ids: an accepted id is a plain name in the store.
pub(crate) fn id(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Id::new(text) {
        Ok(id) => {
            assert_eq!(id.as_str(), text);
            let parts: Vec<Component<'_>> = Path::new(text).components().collect();
            assert!(matches!(parts[..], [Component::Normal(name)] if name == text), "{text:?} is no plain name");
            let file = ProfileStore::at("/store").path(&id, Stored::Policy);
            assert_eq!(file.parent().and_then(Path::parent), Some(Path::new("/store")));
        }
        Err(error) => assert!(error.to_string().chars().count() < 600, "a refusal is short, whatever was refused"),
    }
}

/// Assignments: a path of names and an expression, in which plain text stays in its quotes.
pub(crate) fn set(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(set) = overrides::parse(text) {
        assert!(!set.path.is_empty());
        assert!(set.path.iter().all(|name| !name.contains('"')), "{:?}", set.path);
    }
    let quoted = overrides::quoted(text);
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).expect("it stands in quotes");
    let mut escaped = false;
    for c in inner.chars() {
        assert!(escaped || c != '"', "a quote ends {quoted}");
        assert!(c != '%' && c != '\n', "{quoted}");
        escaped = !escaped && c == '\\';
    }
    assert!(!escaped, "the last quote of {quoted} is escaped");
}

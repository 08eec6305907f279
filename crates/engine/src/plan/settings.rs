//! What of the host's /etc a root of our own making shows: one list for the jail, the other backends and roots of one
//! interpreter.
//!
//! Pure: the names of /etc are the caller's to list.

/// What programs need to run: the loader's, the alternatives', the clock's and the certificates, which lie in `ssl`, or in
/// `pki` where links in `ssl` lead.
pub const ETC: [&str; 7] = ["ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl", "pki", "localtime"];

/// Whether a name of /etc is the settings of a Java runtime, to which links of its own tree lead: `java-17-openjdk`.
pub(crate) fn is_java(name: &str) -> bool {
    name.strip_prefix("java-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What of these names of /etc is shown, and what is always looked for.
pub fn shown(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut java: Vec<String> = names.into_iter().filter(|name| is_java(name)).collect();
    java.sort();
    ETC.map(str::to_owned).into_iter().chain(java).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_java_runtime_has_its_settings_and_nothing_else_of_that_name_is_shown() {
        let names =
            ["java-21-openjdk", "java", "passwd", "java-8-openjdk", "javascript-common", "java-secret", "shadow"];
        let shown = shown(names.map(str::to_owned));
        assert_eq!(shown[ETC.len()..], ["java-21-openjdk", "java-8-openjdk"]);
        assert_eq!(shown[..ETC.len()], ETC);
    }
}

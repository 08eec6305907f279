//! The policy library that profiles import as `sandbox`: embedded, and shown to Nickel as sources in memory.

/// Where the library seems to be: a directory that no file system holds.
pub const ROOT: &str = "/<cofferdam>";

/// Every file of the library: its path below `sandbox/`, its text, and the files that it imports.
pub const LIBRARY: &[(&str, &str, &[&str])] = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// What `import "sandbox"` finds: Nickel imports files, and `sandbox` is a directory.
pub const DIRECTORY: &str = "import \"sandbox/main.ncl\"\n";

/// A file of the library and all that it imports, directly or not, by their paths below `sandbox/`.
pub fn closure(of: &str) -> Vec<&'static str> {
    let find = |name: &str| LIBRARY.iter().find(|(file, ..)| *file == name);
    let mut found: Vec<&'static str> = find(of).map(|(file, ..)| *file).into_iter().collect();
    let mut next = 0;
    while next < found.len() {
        let imports = find(found[next]).map_or(&[][..], |(_, _, imports)| imports);
        for import in imports {
            if let Some((file, ..)) = find(import).filter(|(file, ..)| !found.contains(file)) {
                found.push(file);
            }
        }
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_library_imports_is_embedded() {
        assert!(LIBRARY.iter().any(|(file, ..)| *file == "main.ncl"));
        for (file, _, imports) in LIBRARY {
            for import in *imports {
                assert!(LIBRARY.iter().any(|(other, ..)| other == import), "{file} imports {import}");
            }
        }
    }

    #[test]
    fn a_closure_holds_what_is_imported_through_others() {
        let main = closure("main.ncl");
        assert!(main.contains(&"main.ncl") && main.contains(&"lib/network.ncl"), "{main:?}");
        assert!(closure("no.ncl").is_empty());
    }
}

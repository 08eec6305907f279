//! The policy library that profiles import as `sandbox`: embedded in the program, and passed to Nickel as sources in memory.

/// The virtual directory of the library, which exists on no file system.
pub(crate) const ROOT: &str = "/<cofferdam>";

/// All files of the library: the path below `sandbox/`, the text, and the files that it imports.
pub const LIBRARY: &[(&str, &str, &[&str])] = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// The file that `import "sandbox"` finds, since Nickel imports files, and `sandbox` is a directory.
pub(crate) const DIRECTORY: &str = "import \"sandbox/main.ncl\"\n";

/// A file of the library and all its direct and indirect imports, by their paths below `sandbox/`.
pub(crate) fn closure(of: &str) -> Vec<&'static str> {
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
    fn all_imports_of_the_library_are_embedded() {
        assert!(LIBRARY.iter().any(|(file, ..)| *file == "main.ncl"));
        for (file, _, imports) in LIBRARY {
            for import in *imports {
                assert!(LIBRARY.iter().any(|(other, ..)| other == import), "{file} imports {import}");
            }
        }
    }

    #[test]
    fn closure_contains_indirect_imports() {
        let main = closure("main.ncl");
        assert!(main.contains(&"main.ncl") && main.contains(&"lib/network.ncl"), "{main:?}");
        assert!(closure("no.ncl").is_empty());
    }
}

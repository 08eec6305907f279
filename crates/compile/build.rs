//! Embeds the policy library in the program as text: all `.ncl` files of ncl/sandbox except examples and tests. The link
//! `library` leads there, so that the published crate has them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Directories of the library that no profile imports.
const APART: &[&str] = &["examples", "tests"];

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("library");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort();
    let mut code = String::from("&[\n");
    for (name, path) in &files {
        let imports = imports(name, path);
        writeln!(code, "    ({name:?}, include_str!({:?}), &{imports:?}),", path.display().to_string())
            .expect("a String takes every write");
    }
    code.push(']');
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("library.rs");
    std::fs::write(&out, code).unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}

/// The files of the library that one of its files imports, by their paths below the root.
fn imports(name: &str, path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let written = code.split("import \"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut imports: Vec<String> = written
        .map(|import| {
            let mut parts: Vec<&str> = name.split('/').collect();
            parts.pop();
            for part in import.split('/') {
                match part {
                    ".." => drop(parts.pop()),
                    "." => {}
                    part => parts.push(part),
                }
            }
            parts.join("/")
        })
        .collect();
    imports.sort();
    imports.dedup();
    imports
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, PathBuf)>) {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("cannot read the policy library {}: {error}", directory.display()));
    for entry in entries {
        let path = entry.expect("the directory was just opened").path();
        let name = path.strip_prefix(root).expect("it was found below the root").to_string_lossy().into_owned();
        if path.is_dir() {
            if !APART.contains(&name.as_str()) {
                collect(root, &path, files);
            }
        } else if name.ends_with(".ncl") {
            files.push((name, path));
        }
    }
}

//! `cargo xtask docs`: the documentation as a book, in target/book.
//!
//! ```text
//! docs/*.md, SECURITY.md, … ─▶ target/book-source, links rewritten ─▶ mdbook ─▶ target/book
//! ```
//!
//! docs/SUMMARY.md is the table of contents. Pages stay where readers of the repository find them; a page from elsewhere gets
//! its place in the book from [`ELSEWHERE`]. A link that leads nowhere ends the task, and so does a page that the table of
//! contents does not name. Other files that pages link to are copied beside the book, so that nothing is loaded from
//! another place. Writes below the target directory only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::shell::{cargo, output, run, step};
use crate::workspace::Workspace;

/// The version of mdBook that the book is made with.
const MDBOOK: &str = "0.5.4";

/// Pages of the book that do not lie in docs/: where they lie, and their names in the book.
const ELSEWHERE: &[(&str, &str)] = &[
    ("SECURITY.md", "security.md"),
    ("CONTRIBUTING.md", "contributing.md"),
    ("CHANGELOG.md", "changelog.md"),
    ("ncl/sandbox/README.md", "library.md"),
];

/// The entry of the task table.
pub(crate) fn run_from(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err(format!("unknown arguments {arguments:?}; none is accepted"));
    }
    let workspace = Workspace::read()?;
    step("the book's pages and links");
    let book = Book::read(&workspace.root)?;
    let source = workspace.target.join("book-source");
    book.write(&source)?;
    step("the book");
    let made = workspace.target.join("book");
    run(Command::new(mdbook(&workspace.target)?).arg("build").arg(&source).arg("--dest-dir").arg(&made))?;
    eprintln!("the book begins at {}", made.join("index.html").display());
    Ok(())
}

/// mdBook in that version, installed below the target directory if it is not there.
fn mdbook(target: &Path) -> Result<PathBuf> {
    let root = target.join("mdbook");
    let program = root.join("bin/mdbook");
    if output(Command::new(&program).arg("--version")).is_ok_and(|text| text.trim() == format!("mdbook v{MDBOOK}")) {
        return Ok(program);
    }
    let mut install = cargo();
    install.args([
        "install",
        "--quiet",
        "--locked",
        "--force",
        "--no-default-features",
        "--features",
        "search",
        "--root",
    ]);
    // The lints of this workspace are not mdBook's.
    install.arg(&root).arg(format!("mdbook@{MDBOOK}")).env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    run(&mut install)?;
    Ok(program)
}

/// The pages of the book, with links as they are in the book.
#[derive(Debug)]
pub(crate) struct Book {
    /// Texts by their names in the book.
    pages: BTreeMap<String, String>,
    /// Files that pages link to, by their paths in the repository, which they keep below `files/`.
    files: BTreeSet<String>,
    /// docs/book.toml.
    settings: String,
    /// The repository.
    root: PathBuf,
}

impl Book {
    /// Reads the pages and looks at every link.
    ///
    /// # Errors
    /// A link leads nowhere, or a page is in no table of contents, or twice; all of them, each on a line.
    pub(crate) fn read(root: &Path) -> Result<Book> {
        let read = |path: &str| {
            std::fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
        };
        let mut names: BTreeMap<String, String> =
            ELSEWHERE.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned())).collect();
        let docs = root.join("docs");
        let entries = std::fs::read_dir(&docs).map_err(|error| format!("cannot read {}: {error}", docs.display()))?;
        for entry in entries {
            let name = entry.map_err(|error| format!("cannot read {}: {error}", docs.display()))?.file_name();
            let name = name.to_string_lossy().into_owned();
            if name.ends_with(".md") {
                names.insert(format!("docs/{name}"), name);
            }
        }
        let mut book = Book {
            pages: BTreeMap::new(),
            files: BTreeSet::new(),
            settings: read("docs/book.toml")?,
            root: root.into(),
        };
        let mut broken = Vec::new();
        for (path, name) in &names {
            let text = book.rewrite(path, &read(path)?, &names, &mut broken);
            book.pages.insert(name.clone(), text);
        }
        book.check_contents(&mut broken);
        if broken.is_empty() { Ok(book) } else { Err(broken.join("\n")) }
    }

    /// The text of a page with its links as they are in the book.
    fn rewrite(
        &mut self,
        path: &str,
        text: &str,
        names: &BTreeMap<String, String>,
        broken: &mut Vec<String>,
    ) -> String {
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        let (mut made, mut at) = (String::new(), 0);
        for link in links(text) {
            let target = &text[link.clone()];
            let (file, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
            if file.is_empty() {
                continue;
            }
            let place = plain(&folder.join(file));
            let new = match names.get(&place) {
                Some(name) => name.clone(),
                // The README of the repository is the book's first page in other words.
                None if place == "README.md" => "start.md".to_owned(),
                None if self.root.join(&place).is_file() => {
                    self.files.insert(place.clone());
                    format!("files/{place}")
                }
                None => {
                    broken.push(format!("{path}: {target} is no page and no file"));
                    continue;
                }
            };
            made += &text[at..link.start];
            made += &new;
            made += anchor;
            at = link.end;
        }
        made + &text[at..]
    }

    /// Holds the table of contents to the pages: each once, and no other.
    fn check_contents(&self, broken: &mut Vec<String>) {
        let Some(contents) = self.pages.get("SUMMARY.md") else {
            broken.push("docs/SUMMARY.md is missing: the table of contents".to_owned());
            return;
        };
        let named: Vec<&str> = links(contents).into_iter().map(|link| &contents[link]).collect();
        for name in self.pages.keys().filter(|name| *name != "SUMMARY.md") {
            match named.iter().filter(|named| *named == name).count() {
                1 => {}
                count => broken.push(format!("docs/SUMMARY.md names {name} {count} times")),
            }
        }
    }

    /// Writes what mdBook reads.
    fn write(&self, source: &Path) -> Result {
        let cannot = |what: &Path, error: std::io::Error| format!("cannot write {}: {error}", what.display());
        if source.exists() {
            std::fs::remove_dir_all(source).map_err(|error| cannot(source, error))?;
        }
        let pages = source.join("src");
        std::fs::create_dir_all(&pages).map_err(|error| cannot(&pages, error))?;
        std::fs::write(source.join("book.toml"), &self.settings).map_err(|error| cannot(source, error))?;
        for (name, text) in &self.pages {
            std::fs::write(pages.join(name), text).map_err(|error| cannot(&pages.join(name), error))?;
        }
        for file in &self.files {
            let to = pages.join("files").join(file);
            std::fs::create_dir_all(to.parent().unwrap_or(&pages))
                .and_then(|()| std::fs::copy(self.root.join(file), &to).map(drop))
                .map_err(|error| cannot(&to, error))?;
        }
        Ok(())
    }
}

/// Where the targets of a text's links stand: those within the repository, and outside of code.
pub(crate) fn links(text: &str) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut line, mut fenced) = (Vec::new(), 0, false);
    for whole in text.split_inclusive('\n') {
        fenced ^= whole.starts_with("```");
        let mut from = 0;
        while let Some(open) = whole[from..].find("](").map(|at| from + at + 2) {
            let Some(close) = whole[open..].find(')').map(|at| open + at) else { break };
            let target = &whole[open..close];
            let in_code = fenced || whole[..open].matches('`').count() % 2 == 1;
            if !in_code && !target.contains("://") && !target.contains(' ') {
                found.push(line + open..line + close);
            }
            from = close;
        }
        line += whole.len();
    }
    found
}

/// A path without `.` and `..`, as text.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Book>) {
        let root = tempfile::tempdir().unwrap();
        let others = ELSEWHERE.iter().map(|(path, _)| (*path, ""));
        for (path, text) in others.chain([("docs/book.toml", "")]).chain(files.iter().copied()) {
            std::fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(path), text).unwrap();
        }
        let book = Book::read(root.path());
        (root, book)
    }

    const CONTENTS: &str = "[a](a.md) [s](../SECURITY.md) [c](../CONTRIBUTING.md) [l](../CHANGELOG.md) \
                            [n](../ncl/sandbox/README.md)";

    #[test]
    fn links_lead_to_the_same_pages_in_the_book() {
        let page =
            "[x](../SECURITY.md#y) [own](#here) [web](https://example.com/a.md) [file](../Cargo.toml) [me](a.md)";
        let (_root, book) = with(&[
            ("docs/SUMMARY.md", CONTENTS),
            ("docs/a.md", page),
            ("Cargo.toml", ""),
            ("SECURITY.md", "[a](docs/a.md)"),
        ]);
        let book = book.unwrap();
        let expected =
            "[x](security.md#y) [own](#here) [web](https://example.com/a.md) [file](files/Cargo.toml) [me](a.md)";
        assert_eq!((book.pages["a.md"].as_str(), book.pages["security.md"].as_str()), (expected, "[a](a.md)"));
        assert_eq!(book.files.iter().collect::<Vec<_>>(), ["Cargo.toml"]);
        assert!(book.pages["SUMMARY.md"].ends_with("[n](library.md)"));
    }

    #[test]
    fn what_stands_in_code_is_no_link() {
        let text = "`[0-9](x)` [a](b.md)\n```\n[c](d.md)\n```\n[e](f.md#g)";
        assert_eq!(links(text).into_iter().map(|link| &text[link]).collect::<Vec<_>>(), ["b.md", "f.md#g"]);
    }

    #[test]
    fn a_page_without_a_place_and_a_dead_link_are_named() {
        let (_root, book) = with(&[("docs/SUMMARY.md", CONTENTS), ("docs/a.md", "[x](no.md)"), ("docs/b.md", "")]);
        assert_eq!(book.unwrap_err(), "docs/a.md: no.md is no page and no file\ndocs/SUMMARY.md names b.md 0 times");
    }

    #[test]
    fn the_projects_own_pages_are_a_book() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let book = Book::read(root).unwrap_or_else(|broken| panic!("{broken}"));
        assert!(book.pages.len() > 20, "{:?}", book.pages.keys());
    }
}

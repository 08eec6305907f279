//! Which file of a crate imports which, and what is wrong with that: circles, and imports from a lower level to a higher one.
//!
//! A file is a module. It imports another where it names something that is declared there, in `use` or anywhere else, by a
//! path that begins with `crate` or `super`. A module that names one of its own modules by its bare name imports nothing:
//! they are its parts. A thing that a module only passes on (`pub use`) counts for the module that declares it. Tests
//! (`#[cfg(test)]`) do not count.
//!
//! Reads sources with syn. Expands no macros, so it does not see what stands between the brackets of a macro's call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

use crate::Result;

/// Files that import each other are one thing in pieces. More than these are too many to read at once.
pub(crate) const LARGEST_CIRCLE: usize = 3;

/// Where an alias leads, in how many steps at most.
const LONGEST_CHAIN: usize = 8;

/// A module's path below the crate: `["seccomp", "levels"]`.
type Module = Vec<String>;

/// The files of one program or library, by their paths below the directory of its root, and what they import.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    files: BTreeMap<Module, File>,
    imports: BTreeMap<String, BTreeSet<String>>,
}

/// What a file says, before any path is resolved.
#[derive(Debug, Default)]
struct File {
    path: String,
    /// What it declares.
    items: BTreeSet<String>,
    /// Names that it gives to things of other modules, or passes on.
    aliases: BTreeMap<String, Module>,
    /// Modules of which it passes everything on, or names everything.
    globs: Vec<Module>,
    /// Absolute paths that it uses itself.
    used: BTreeSet<Module>,
    /// Modules that are compiled for tests alone.
    tests: BTreeSet<Module>,
}

impl Graph {
    /// Reads the files below the directory of a crate's root file.
    ///
    /// # Errors
    /// One cannot be read, or is not Rust.
    pub(crate) fn read(directory: &Path) -> Result<Graph> {
        let mut texts = Vec::new();
        let mut open = vec![directory.to_owned()];
        while let Some(at) = open.pop() {
            let entries = std::fs::read_dir(&at).map_err(|error| format!("cannot read {}: {error}", at.display()))?;
            for entry in entries {
                let path = entry.map_err(|error| format!("cannot read {}: {error}", at.display()))?.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path)
                        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                    let name = path.strip_prefix(directory).unwrap_or(&path).display().to_string();
                    texts.push((name, text));
                }
            }
        }
        Graph::of(&texts)
    }

    /// The graph of these files: paths below the root's directory, and texts.
    fn of(texts: &[(String, String)]) -> Result<Graph> {
        // The library is read last: where a program stands beside it, `crate` means the library in every other file.
        let mut texts: Vec<_> = texts.iter().collect();
        texts.sort_by_key(|(path, _)| path == "lib.rs");
        let modules: BTreeSet<Module> = texts.iter().map(|(path, _)| module_of(path)).collect();
        let mut files = BTreeMap::new();
        for (path, text) in texts {
            let parsed = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
            let module = module_of(path);
            let mut reader = Reader {
                modules: &modules,
                at: module.clone(),
                own: module.clone(),
                file: File { path: path.clone(), ..File::default() },
            };
            reader.visit_file(&parsed);
            files.insert(module, reader.file);
        }
        let tests: Vec<Module> = files.values().flat_map(|file: &File| file.tests.iter().cloned()).collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        let mut graph = Graph { files, imports: BTreeMap::new() };
        for (module, file) in &graph.files {
            let used = file.used.iter().filter_map(|path| graph.declaring(path, LONGEST_CHAIN));
            let imported = used.filter(|other| *other != module).map(|other| graph.files[other].path.clone()).collect();
            graph.imports.insert(file.path.clone(), imported);
        }
        Ok(graph)
    }

    /// The module that declares what an absolute path names.
    fn declaring(&self, path: &[String], steps: usize) -> Option<&Module> {
        let depth = (0..=path.len()).rev().find(|&length| self.files.contains_key(&path[..length]))?;
        let (module, file) = self.files.get_key_value(&path[..depth])?;
        let Some(name) = path.get(depth) else { return Some(module) };
        if steps == 0 || file.items.contains(name) {
            return Some(module);
        }
        if let Some(target) = file.aliases.get(name) {
            let target: Module = target.iter().chain(&path[depth + 1..]).cloned().collect();
            return self.declaring(&target, steps - 1);
        }
        let passed_on = file.globs.iter().find_map(|glob| {
            let target: Module = glob.iter().chain(&path[depth..]).cloned().collect();
            let found = self.declaring(&target, steps - 1)?;
            self.files[found].items.contains(name).then_some(found)
        });
        Some(passed_on.unwrap_or(module))
    }

    /// The files that a file reaches by its imports.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for next in self.imports.get(at).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }

    /// Sets of files each of which reaches every other, of more than [`LARGEST_CIRCLE`] files.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.imports.keys().map(|file| (file.as_str(), self.reached(file))).collect();
        let mut circles = BTreeSet::new();
        for (file, others) in &reached {
            let circle: Vec<&str> = others.iter().copied().filter(|other| reached[other].contains(file)).collect();
            if circle.len() > LARGEST_CIRCLE {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Imports from a lower level to a higher one. Levels come with the highest first, and each is a list of modules or
    /// files of the crate; a file of which no level speaks is a complaint as well.
    pub(crate) fn upward(&self, levels: &[&[&str]]) -> Vec<String> {
        let level = |file: &str| {
            let first = file.split('/').next().unwrap_or(file);
            let name = first.strip_suffix(".rs").unwrap_or(first);
            levels.iter().position(|names| names.contains(&name))
        };
        let mut complaints = Vec::new();
        for (file, imported) in &self.imports {
            let Some(own) = level(file) else {
                complaints.push(format!("{file} stands on no level: say in xtask/src/deps.rs on which"));
                continue;
            };
            for other in imported.iter().filter(|other| level(other).is_some_and(|other| other < own)) {
                complaints.push(format!("{file} imports {other}, which stands above it"));
            }
        }
        complaints
    }
}

/// The module of a file below the directory of the root.
fn module_of(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].contains(&parts.last().map_or("", String::as_str)) {
        parts.pop();
    }
    parts
}

/// Reads one file.
struct Reader<'a> {
    /// The modules that have files.
    modules: &'a BTreeSet<Module>,
    /// The module that is read: the file's, or one inside it.
    at: Module,
    /// The file's.
    own: Module,
    file: File,
}

impl Reader<'_> {
    /// The absolute path of one that is written here; none where it begins with another crate, or with something local.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Module::new(),
            "self" => self.at.clone(),
            "super" => self.at.split_last()?.1.to_vec(),
            name => {
                let mut base = self.at.clone();
                base.push(name.to_owned());
                return self.modules.contains(&base).then(|| base.into_iter().chain(rest.iter().cloned()).collect());
            }
        };
        while let Some(("super", further)) = rest.split_first().map(|(name, further)| (name.as_str(), further)) {
            base.pop()?;
            rest = further;
        }
        Some(base.into_iter().chain(rest.iter().cloned()).collect())
    }

    fn import(&mut self, tree: &syn::UseTree, before: &[String], passed_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), passed_on),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, passed_on));
            }
            syn::UseTree::Glob(_) => (before.to_vec(), None),
            syn::UseTree::Name(name) if name.ident == "self" => (before.to_vec(), before.last().cloned()),
            syn::UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            syn::UseTree::Rename(rename) if rename.ident == "self" => {
                (before.to_vec(), Some(rename.rename.to_string()))
            }
            syn::UseTree::Rename(rename) => (with(&rename.ident), Some(rename.rename.to_string())),
        };
        let leads_out = leads_out(&path);
        let Some(path) = self.absolute(&path) else { return };
        if self.at == self.own {
            match name {
                Some(name) => drop(self.file.aliases.insert(name, path.clone())),
                None => self.file.globs.push(path.clone()),
            }
        }
        if !passed_on && leads_out {
            self.file.used.insert(path);
        }
    }
}

/// Whether a path leads out of the module that names it: none that begins with a part of the module.
fn leads_out(path: &[String]) -> bool {
    path.first().is_some_and(|first| first == "crate" || first == "super")
}

/// Whether it is compiled for tests alone.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        meta => meta.path().is_ident("test"),
    })
}

/// The attributes of an item, and its name where it has one.
fn described(item: &syn::Item) -> (&[syn::Attribute], Option<&syn::Ident>) {
    match item {
        syn::Item::Const(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Enum(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Fn(it) => (&it.attrs, Some(&it.sig.ident)),
        syn::Item::Impl(it) => (&it.attrs, None),
        syn::Item::Macro(it) => (&it.attrs, it.ident.as_ref()),
        syn::Item::Mod(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Static(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Struct(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Trait(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Type(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Union(it) => (&it.attrs, Some(&it.ident)),
        syn::Item::Use(it) => (&it.attrs, None),
        _ => (&[], None),
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = described(item);
        if is_test(attributes) {
            if let syn::Item::Mod(module) = item {
                let path = [&self.at[..], &[module.ident.to_string()]].concat();
                self.file.tests.insert(path);
            }
            return;
        }
        if let Some(name) = name.filter(|_| self.at == self.own) {
            self.file.items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.at.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[], !matches!(item.vis, syn::Visibility::Inherited));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let names: Module = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            if leads_out(&names) {
                self.file.used.extend(self.absolute(&names));
            }
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let texts: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Graph::of(&texts).unwrap()
    }

    /// Four files, each of which imports the next, and the last of which imports the first.
    const RING: [(&str, &str); 5] = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub struct B; fn b(_: super::c::C) {}"),
        ("c/mod.rs", "pub struct C; fn c() { crate::d::d(); }"),
        ("d.rs", "use super::{a::A as First, b}; pub fn d() {}"),
    ];

    #[test]
    fn a_circle_of_four_files_is_found() {
        assert_eq!(graph(&RING).circles(), [["a.rs", "b.rs", "c/mod.rs", "d.rs"]]);
    }

    #[test]
    fn a_circle_of_three_files_passes() {
        let mut three = RING;
        three[3].1 = "pub struct C; fn c() { crate::a::a(); }";
        let graph = graph(&three);
        assert_eq!(graph.circles(), Vec::<Vec<&str>>::new());
        assert!(graph.reached("a.rs").contains("a.rs"), "the three do import each other");
    }

    #[test]
    fn imports_of_tests_do_not_count() {
        for last in [
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(test)] use super::a::A;",
            "#[cfg(test)] fn d() { crate::a::a() }",
            "struct D; impl D { #[cfg(test)] fn d() { crate::a::a() } }",
            "#[cfg(test)] mod tests;",
        ] {
            let mut files = RING.to_vec();
            files[4].1 = last;
            files.push(("d/tests.rs", "use crate::a::A; fn d() { super::d() }"));
            assert!(graph(&files).circles().is_empty(), "{last}");
        }
    }

    #[test]
    fn what_is_passed_on_leads_to_where_it_is_declared() {
        let graph = graph(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::*; pub struct Own;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::A; pub struct B;"),
            ("c.rs", "use crate::{B, Own}; use std::a; use self::own::X; mod own; fn c() { own::y(); }"),
            ("c/own.rs", "pub struct X;"),
        ]);
        let imports = |file: &str| graph.imports[file].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(imports("lib.rs"), Vec::<&str>::new());
        assert_eq!(imports("b.rs"), ["a.rs"]);
        assert_eq!(imports("c.rs"), ["b.rs", "lib.rs"]);
    }

    #[test]
    fn an_import_of_a_higher_level_is_found() {
        let graph = graph(&[
            ("lib.rs", "mod top; mod bottom; mod stray;"),
            ("top.rs", "use crate::bottom::inner::In; pub struct Top;"),
            ("bottom/mod.rs", "mod inner;"),
            ("bottom/inner.rs", "pub struct In; fn f() { crate::top::g() }"),
            ("stray.rs", ""),
        ]);
        let found = graph.upward(&[&["lib", "top"], &["bottom"]]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "bottom/inner.rs imports top.rs, which stands above it");
        assert!(found[1].starts_with("stray.rs stands on no level"), "{found:?}");
    }
}

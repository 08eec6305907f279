//! Overlay file systems of the host: what lies in a layer also shows where the overlay is mounted, and the other way round.
//!
//! Pure but for [`Overlays::here`]: mountinfo in, places out. Sources: proc_pid_mountinfo(5), mount(8), and the kernel's
//! fs/overlayfs/params.c (`ovl_show_options`).

use cofferdam_policy::paths::is_within;

use crate::plan::bind_mounts::unescape;
use crate::plan::mount_table::{below, join};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Overlay {
    point: String,
    /// What of each layer shows at `point`, as it is reached here, without links.
    layers: Vec<String>,
    /// Where the kernel puts files on their way to the upper layer.
    work: Vec<String>,
    /// A layer is named relative to a directory that the mount table does not name.
    relative: bool,
}

/// The overlays of one mount table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overlays(Vec<Overlay>);

impl Overlays {
    /// Of this table of this process's mounts.
    pub(crate) fn here(mountinfo: &[u8]) -> Overlays {
        let real = |path: &str| {
            let real = std::fs::canonicalize(path).ok().filter(|real| real.is_dir())?;
            real.into_os_string().into_string().ok()
        };
        Overlays::of_table(mountinfo, &real)
    }

    /// `real` is where a path leads here; a layer that leads nowhere, as those of a container's root do, can be shown by nothing.
    pub(super) fn of_table(mountinfo: &[u8], real: &dyn Fn(&str) -> Option<String>) -> Overlays {
        let lines = mountinfo.split(|&byte| byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        Overlays(lines.filter_map(|line| overlay(line, real)).collect())
    }

    /// Whether none is mounted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The other places that show this path, a part of it, or what it shows.
    pub(crate) fn of(&self, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        for Overlay { point, layers, work, .. } in &self.0 {
            let before = found.len();
            for layer in layers {
                // An overlay that lies within its own layer is not there again.
                if is_within(point, layer) && is_within(path, point) {
                    continue;
                }
                if let Some(rest) = below(path, layer) {
                    found.push(join(point, rest));
                } else if is_within(layer, path) {
                    found.push(point.clone());
                }
            }
            if let Some(rest) = below(path, point) {
                found.extend(layers.iter().map(|layer| join(layer, rest)));
            } else if is_within(point, path) {
                found.extend_from_slice(layers);
            }
            if found.len() > before {
                found.extend_from_slice(work);
            }
        }
        found.retain(|place| place != path);
        found
    }

    /// The overlay that a path lies in, where one of its layers is unknown and so what it shows. Not for one that is `/`: the
    /// layers of a container's root lie outside of what is seen in it.
    pub(crate) fn undetermined(&self, path: &str) -> Option<&str> {
        let overlay = self.0.iter().find(|one| one.relative && one.point != "/" && is_within(path, &one.point))?;
        Some(&overlay.point)
    }
}

/// One line: id, parent, device, root, mount point, options, tags, `-`, type, source, the file system's own options.
fn overlay(line: &str, real: &dyn Fn(&str) -> Option<String>) -> Option<Overlay> {
    let (mount, own) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (unescape(mount.next()?)?, unescape(mount.next()?)?);
    let mut own = own.split(' ');
    // The second is what a program in user space mounts.
    if !matches!(own.next()?, "overlay" | "fuse.fuse-overlayfs") {
        return None;
    }
    let options = own.nth(1)?;
    let mut found = Overlay { point, layers: Vec::new(), work: Vec::new(), relative: false };
    for (key, value) in options.split(',').filter_map(|option| option.split_once('=')) {
        let names = match key {
            "lowerdir" => listed(value),
            "lowerdir+" | "datadir+" | "upperdir" | "workdir" => vec![value.to_owned()],
            _ => continue,
        };
        for name in names.iter().flat_map(|name| readings(name)).filter(|name| !name.is_empty()) {
            if key == "workdir" {
                found.work.extend(real(&name));
            } else if name.starts_with('/') {
                // A bind mount of a part of the overlay shows that part of each layer.
                let layer = real(&name).map(|layer| join(&layer, root.trim_start_matches('/')));
                found.layers.extend(layer.filter(|layer| !found.layers.contains(layer)));
            } else {
                found.relative = true;
            }
        }
    }
    Some(found)
}

/// The names of a list with colons. Kernels before 6.5 show a colon of a name behind a backslash, as it was written for mount(2);
/// later ones as `\072`, where `\134:` ends a name with a backslash. Both readings are taken: of a name that is none, nothing is there.
fn listed(value: &str) -> Vec<String> {
    let mut names: Vec<String> = value.split(':').map(str::to_owned).collect();
    let mut joined = String::new();
    for part in value.split(':') {
        joined.push_str(part);
        if part.ends_with("\\134") {
            joined.push(':');
        } else {
            names.push(std::mem::take(&mut joined));
        }
    }
    names.push(joined);
    names.sort();
    names.dedup();
    names
}

/// A name without the mount table's escapes, and also without those of mount(2), which earlier kernels leave in it.
fn readings(name: &str) -> Vec<String> {
    let Some(unescaped) = unescape(name) else { return Vec::new() };
    let mut plain = String::new();
    let mut characters = unescaped.chars();
    while let Some(one) = characters.next() {
        plain.extend(if one == '\\' { characters.next() } else { Some(one) });
    }
    if plain == unescaped { vec![unescaped] } else { vec![unescaped, plain] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlays(options: &str) -> Overlays {
        at("/", options)
    }

    fn at(root: &str, options: &str) -> Overlays {
        let table = format!(
            "21 1 8:1 / / rw - ext4 /dev/sda rw\n22 21 0:40 {root} /m rw shared:3 - overlay overlay rw,{options}\n"
        );
        let there = |path: &str| (!path.starts_with("/gone")).then(|| path.to_owned());
        Overlays::of_table(table.as_bytes(), &there)
    }

    #[test]
    fn what_lies_in_a_layer_shows_in_the_overlay_and_the_other_way_round() {
        let one = overlays("lowerdir=/a:/b,upperdir=/u,workdir=/w");
        for layer in ["/a", "/b", "/u"] {
            assert_eq!(one.of(&format!("{layer}/x")), ["/m/x", "/w"], "{layer}");
            assert_eq!(one.of(layer), ["/m", "/w"], "{layer}");
        }
        assert_eq!(one.of("/m/x"), ["/a/x", "/b/x", "/u/x", "/w"]);
        // What contains a layer or the overlay shows through it too.
        let state = overlays("lowerdir=/state/a,upperdir=/u/b,workdir=/w/c");
        assert_eq!(state.of("/state"), ["/m", "/w/c"]);
        // Beside them nothing shows.
        for beside in ["/x", "/ab", "/mm", "/uu/x"] {
            assert_eq!(one.of(beside), Vec::<String>::new(), "{beside}");
        }
        assert_eq!(
            Overlays::of_table(b"22 21 8:1 / /m rw - ext4 /dev/x rw,lowerdir=/a", &|p| Some(p.into())),
            Overlays::default()
        );
    }

    #[test]
    fn layers_of_later_kernels_and_of_parts_are_read() {
        assert_eq!(overlays("lowerdir+=/a,lowerdir+=/b,datadir+=/d").of("/m/x"), ["/a/x", "/b/x", "/d/x"]);
        assert_eq!(overlays("lowerdir=/a::/d").of("/d/x"), ["/m/x"]);
        let part = at("/sub", "lowerdir=/a,upperdir=/u");
        assert_eq!(part.of("/a/sub/x"), ["/m/x"]);
        assert_eq!(part.of("/m/x"), ["/a/sub/x", "/u/sub/x"]);
        assert_eq!(part.of("/a/other"), Vec::<String>::new());
    }

    #[test]
    fn escaped_names_are_read_in_the_spelling_of_each_kernel() {
        for (spelled, name) in [
            (r"/with\040space", "/with space"),
            (r"/with\054comma", "/with,comma"),
            (r"/with\134:colon", "/with:colon"),
            (r"/with\072colon", "/with:colon"),
            (r"/with\134\134backslash", r"/with\backslash"),
            (r"/with\134backslash", r"/with\backslash"),
        ] {
            for list in [spelled.to_owned(), format!("/first:{spelled}"), format!("{spelled}:/last")] {
                let found = overlays(&format!("lowerdir={list}")).of(&format!("{name}/x"));
                assert!(found.contains(&"/m/x".to_owned()), "{list}");
            }
            let found = overlays(&format!("lowerdir=/a,upperdir={spelled}")).of(&format!("{name}/x"));
            assert!(spelled.contains("134:") || found.contains(&"/m/x".to_owned()), "{spelled}");
        }
    }

    #[test]
    fn absent_layers_show_nothing_and_relative_ones_are_unknown() {
        let gone = overlays("lowerdir=/gone/a:/gone/b,upperdir=/gone/u,workdir=/gone/w");
        assert_eq!((gone.of("/m/x"), gone.undetermined("/m/x")), (Vec::new(), None));
        let relative = overlays("lowerdir=l/a:l/b,upperdir=/u");
        assert_eq!(relative.undetermined("/m/x"), Some("/m"));
        assert_eq!((relative.undetermined("/x"), relative.undetermined("/mm")), (None, None));
        assert_eq!(overlays("lowerdir=/a:/b").undetermined("/m/x"), None);
        let root = b"22 21 0:40 / / rw - overlay overlay rw,lowerdir=l/a:l/b";
        assert_eq!(Overlays::of_table(root, &|path| Some(path.into())).undetermined("/x"), None);
    }
}

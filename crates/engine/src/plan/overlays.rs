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
    /// A layer is named relative to a directory that the mount table does not name, or another mount covers its name since.
    unknown: bool,
    /// Places in it of which a layer has what another mount covers.
    covered: Vec<String>,
}

/// One line: id, parent, device, root, mount point, options, tags, `-`, type, source, the file system's own options.
struct MountinfoLine<'t> {
    device: &'t str,
    root: String,
    point: String,
    kind: &'t str,
    options: &'t str,
}

fn line(text: &str) -> Option<MountinfoLine<'_>> {
    let (mount, own) = text.split_once(" - ")?;
    let mut mount = mount.split(' ');
    let device = mount.nth(2)?;
    let (root, point) = (unescape(mount.next()?)?, unescape(mount.next()?)?);
    let mut own = own.split(' ');
    Some(MountinfoLine { device, root, point, kind: own.next()?, options: own.nth(1)? })
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
        let texts = mountinfo.split(|&byte| byte == b'\n').filter_map(|text| std::str::from_utf8(text).ok());
        let lines: Vec<MountinfoLine<'_>> = texts.filter_map(line).collect();
        // The second is what a program in user space mounts.
        let overlays = lines.iter().filter(|one| matches!(one.kind, "overlay" | "fuse.fuse-overlayfs"));
        Overlays(overlays.map(|one| overlay(one, &lines, real)).collect())
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

    /// The overlay that a path lies in, where what it shows there is not known by a name of a layer. Not for one that is `/`:
    /// the layers of a container's root lie outside of what is seen in it.
    pub(crate) fn undetermined(&self, path: &str) -> Option<&str> {
        let unknown = |one: &&Overlay| {
            one.point != "/"
                && is_within(path, &one.point)
                && (one.unknown || one.covered.iter().any(|place| is_within(path, place)))
        };
        self.0.iter().find(unknown).map(|overlay| overlay.point.as_str())
    }
}

fn overlay(this: &MountinfoLine<'_>, lines: &[MountinfoLine<'_>], real: &dyn Fn(&str) -> Option<String>) -> Overlay {
    let mut found = Overlay {
        point: this.point.clone(),
        layers: Vec::new(),
        work: Vec::new(),
        unknown: false,
        covered: Vec::new(),
    };
    // A bind mount of a part of the overlay shows that part of each layer.
    let part = this.root.trim_start_matches('/');
    for (key, value) in this.options.split(',').filter_map(|option| option.split_once('=')) {
        let (names, others) = match key {
            "lowerdir" => listed(value),
            "lowerdir+" | "datadir+" | "upperdir" | "workdir" => (vec![value.to_owned()], Vec::new()),
            _ => continue,
        };
        if key == "workdir" {
            found.work.extend(names.iter().flat_map(|name| readings(name)).filter_map(|name| real(&name)));
            continue;
        }
        let mut all_there = true;
        for name in names {
            let readings = readings(&name);
            found.unknown |= readings.iter().any(|name| !name.is_empty() && !name.starts_with('/'));
            all_there &= readings.iter().any(|name| real(name).is_some());
            for name in readings.into_iter().filter(|name| name.starts_with('/')) {
                found.take(&name, part, this, lines, real);
            }
        }
        for name in others.iter().flat_map(|name| readings(name)).filter(|name| !name.is_empty()) {
            match name.starts_with('/') {
                true => found.take(&name, part, this, lines, real),
                false => found.unknown |= !all_there,
            }
        }
    }
    found
}

impl Overlay {
    /// Takes a layer by its absolute name. What covers that since leaves open what the layer is; what is mounted below it is
    /// no part of the layer.
    fn take(
        &mut self,
        name: &str,
        part: &str,
        this: &MountinfoLine<'_>,
        lines: &[MountinfoLine<'_>],
        real: &dyn Fn(&str) -> Option<String>,
    ) {
        // Where the name leads nowhere now, the nearest directory above that is there.
        let mut there = name;
        let nearest = loop {
            match (real(there), there.rsplit_once('/')) {
                (Some(nearest), _) => break join(&nearest, name[there.len()..].trim_start_matches('/')),
                (None, Some((above, _))) if !above.is_empty() => there = above,
                _ => break name.to_owned(),
            }
        };
        let layer = join(&nearest, part);
        let same = |one: &MountinfoLine<'_>| one.device == this.device;
        let at = lines.iter().position(same).unwrap_or(0);
        for (i, other) in lines.iter().enumerate().filter(|(_, other)| !same(other)) {
            if is_within(&layer, &other.point) {
                // The table is in the order of mounting. The numbers are not: those of mounts that went are used again.
                self.unknown |= i > at;
            } else if is_within(&other.point, &layer)
                && !is_within(&other.point, &self.point)
                && let Some(rest) = below(&other.point, &layer)
            {
                self.covered.push(join(&self.point, rest));
            }
        }
        if real(name).is_some() && !self.layers.contains(&layer) {
            self.layers.push(layer);
        }
    }
}

/// The names of a list with colons, and what else they may be. Kernels show the list as it was written for mount(2), with a
/// backslash before what belongs to a name. Only 6.5 shows a colon of a name as `\072`, and `\134:` where a name ends with a
/// backslash, so what is between colons is taken as well: of a name that is none, nothing is there.
fn listed(value: &str) -> (Vec<String>, Vec<String>) {
    const BACKSLASH: &str = "\\134";
    let (mut names, mut name, mut rest) = (Vec::new(), String::new(), value);
    while let Some(one) = rest.chars().next() {
        let mut length = one.len_utf8();
        if let Some(next) = rest.strip_prefix(BACKSLASH) {
            // What follows belongs to the name.
            length = match next.strip_prefix(BACKSLASH) {
                Some(_) => 2 * BACKSLASH.len(),
                None => BACKSLASH.len() + next.chars().next().map_or(0, char::len_utf8),
            };
        } else if one == ':' {
            names.push(std::mem::take(&mut name));
            rest = &rest[1..];
            continue;
        }
        name.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    names.push(name);
    let others = value.split(':').map(str::to_owned).filter(|other| !names.contains(other)).collect();
    (names, others)
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

    #[test]
    fn what_covers_the_name_of_a_layer_since_leaves_open_what_the_overlay_shows() {
        let table = |lines: &[&str]| {
            let real = |path: &str| match path.strip_prefix("/link") {
                Some(rest) => Some(format!("/p{rest}")),
                None => (!path.starts_with("/p/g")).then(|| path.to_owned()),
            };
            Overlays::of_table(lines.join("\n").as_bytes(), &real)
        };
        let (root, over) = ("21 1 8:1 / / rw - ext4 /dev/sda rw", "30 21 0:40 / /m rw - overlay o rw,lowerdir=/p/g:/x");
        let linked = "30 21 0:40 / /m rw - overlay o rw,lowerdir=/link/g:/x";
        let cover = "31 21 0:41 / /p rw - tmpfs t rw";
        for lines in [[root, over, cover], [root, linked, cover]] {
            assert_eq!(table(&lines).undetermined("/m/s/k"), Some("/m"), "{lines:?}");
        }
        // What was there before the overlay is what it was mounted of, whatever its number: they are used again.
        assert_eq!(table(&[root, cover, over]).undetermined("/m/s/k"), None);
        assert_eq!(table(&["99 1 8:1 / / rw - ext4 /dev/sda rw", over]).undetermined("/m/s/k"), None);
        assert_eq!(table(&[root, over, "29 21 0:41 / /p rw - tmpfs t rw"]).undetermined("/m/s/k"), Some("/m"));
        // What is mounted later elsewhere, or on the overlay itself, covers nothing; nor does the overlay its own layer.
        for beside in ["31 21 0:41 / /q rw - tmpfs t rw", "31 30 0:41 / /m/s rw - tmpfs t rw"] {
            assert_eq!(table(&[root, over, beside]).undetermined("/m/s/k"), None, "{beside}");
        }
        let own = "30 21 0:40 / /x rw - overlay o rw,lowerdir=/x:/y";
        assert_eq!(table(&[root, own, "31 30 0:41 / /x/s rw - tmpfs t rw"]).undetermined("/x/s/k"), None);
        // A bind mount of the overlay is no later one.
        let bound = "32 21 0:40 / /n rw - overlay o rw,lowerdir=/p/g:/x";
        assert_eq!(table(&[root, over, cover, bound]).undetermined("/n/s/k"), Some("/n"));
        // What is mounted below a layer is no part of it, whenever that was.
        for lines in
            [[root, over, "31 21 0:41 / /x/s rw - tmpfs t rw"], [root, "29 21 0:41 / /x/s rw - tmpfs t rw", over]]
        {
            let found = table(&lines);
            assert_eq!((found.undetermined("/m/s/k"), found.undetermined("/m/t")), (Some("/m"), None), "{lines:?}");
        }
    }

    #[test]
    fn a_colon_in_a_name_makes_no_relative_one() {
        let known = |options: &str| at("/", options).undetermined("/m/x").is_none();
        assert!(known(r"lowerdir=/c\134:c:/x") && known(r"lowerdir=/x:/c\134:c\134:"));
        assert!(known(r"lowerdir=/c\072c:/x") && known(r"lowerdir=/c\134\134:/x"));
        assert_eq!(overlays(r"lowerdir=/c\134:c:/x").of("/c:c/k"), ["/m/k"]);
        // The backslash before the colon is the name's own here.
        assert!(!known(r"lowerdir=/c\134\134:c:/x") && !known("lowerdir=c:/x"));
        // As 6.5 would show another list.
        assert!(!known(r"lowerdir=/gone\134:c:/x"));
    }
}

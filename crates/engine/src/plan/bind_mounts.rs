//! Directories of the host that show the same files: bind mounts, or one file system mounted twice.
//!
//! A path that is denied or protected has to be held at its other places as well. Pure: mountinfo in, pairs out.
//! Source: proc_pid_mountinfo(5). Aliases that no mount makes (hard links) are not seen here.

use std::collections::HashMap;

use crate::plan::mount_table::{below, join};

/// What lies at `from` also shows at `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    from: String,
    to: String,
}

/// All pairs of one mount table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BindMounts {
    pairs: Vec<Pair>,
    points: Vec<String>,
    processes: Vec<String>,
}

struct MountinfoEntry {
    device: String,
    root: String,
    point: String,
    shows_processes: bool,
}

impl BindMounts {
    /// Of this mount table.
    pub(super) fn of_table(mountinfo: &[u8]) -> BindMounts {
        // A mount whose name is no text counts as well, under a name like it.
        let mounts: Vec<MountinfoEntry> =
            mountinfo.split(|&b| b == b'\n').filter_map(|l| mount(&String::from_utf8_lossy(l))).collect();
        let mut pairs: Vec<Pair> = Vec::new();
        let mut of_device: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, mount) in mounts.iter().enumerate() {
            of_device.entry(&mount.device).or_default().push(i);
        }
        for (i, one) in mounts.iter().enumerate() {
            for &k in &of_device[one.device.as_str()] {
                let two = &mounts[k];
                if i == k {
                    continue;
                }
                // What `two` has as its root lies within what `one` shows.
                let Some(rest) = below(&two.root, &one.root) else { continue };
                let (from, to) = (join(&one.point, rest), two.point.clone());
                if from != to {
                    pairs.push(Pair { from: to.clone(), to: from.clone() });
                    pairs.push(Pair { from, to });
                }
            }
        }
        pairs.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
        pairs.dedup();
        let processes = mounts.iter().filter(|m| m.shows_processes).map(|m| m.point.clone()).collect();
        BindMounts { pairs, points: mounts.into_iter().map(|m| m.point).collect(), processes }
    }

    /// Where proc file systems are mounted: what shows them shows the host's processes.
    pub(crate) fn processes(&self) -> &[String] {
        &self.processes
    }

    /// Whether something is mounted below this directory of the host.
    pub(crate) fn mounted_below(&self, dir: &str) -> bool {
        self.first_below(dir).is_some()
    }

    /// What is mounted below this directory of the host, one of it.
    pub(crate) fn first_below(&self, dir: &str) -> Option<&str> {
        self.points.iter().find(|p| below(p, dir).is_some_and(|rest| !rest.is_empty())).map(String::as_str)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The other places at which this path itself shows.
    pub(crate) fn itself(&self, path: &str) -> Vec<String> {
        // A mount that lies within what it shows is not there again: a bind mount of `/` at `/mnt` shows no `/mnt/mnt/etc`.
        let again = |pair: &&Pair| below(&pair.to, &pair.from).is_some() && below(path, &pair.to).is_some();
        let pairs = self.pairs.iter().filter(|pair| !again(pair));
        let mut found: Vec<String> = pairs.filter_map(|pair| Some(join(&pair.to, below(path, &pair.from)?))).collect();
        found.retain(|alias| alias != path);
        found
    }

    /// The other places at which this path, or something below it, shows.
    pub(crate) fn of(&self, path: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut add = |p: String| {
            if p != path && !found.contains(&p) {
                found.push(p);
            }
        };
        for pair in &self.pairs {
            if let Some(rest) = below(path, &pair.from) {
                add(join(&pair.to, rest));
            } else if below(&pair.from, path).is_some() && below(&pair.to, path).is_none() {
                add(pair.to.clone());
            }
        }
        found
    }
}

/// One line: id, parent, device, root, mount point, options, and after a dash the type. What is mounted over again later still counts: holding a place that
/// does not show is no harm.
fn mount(line: &str) -> Option<MountinfoEntry> {
    let mut words = line.split(' ').skip(2);
    let (device, root, point) = (words.next()?, words.next()?, words.next()?);
    let shows_processes = words.skip_while(|&word| word != "-").nth(1) == Some("proc");
    Some(MountinfoEntry { device: device.to_owned(), root: unescape(root)?, point: unescape(point)?, shows_processes })
}

/// Space, tab, line feed and backslash are written as three octal digits.
pub(super) fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while i < bytes.len() {
        let octal = bytes.get(i + 1..i + 4).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match (bytes[i], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                i += 4;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::BindMounts;

    fn aliases(table: &str) -> BindMounts {
        BindMounts::of_table(table.as_bytes())
    }

    const HOST: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda rw
22 21 0:5 / /proc rw - proc proc rw
30 21 8:1 /home/u /mnt/my\\040home rw - ext4 /dev/sda rw
31 21 8:1 /home/u/.ssh/id /keys/id rw - ext4 /dev/sda rw
";

    #[test]
    fn what_a_bind_mount_shows_again_is_found_from_both_sides() {
        let t = aliases(HOST);
        assert_eq!(t.of("/home/u/.aws"), ["/mnt/my home/.aws"]);
        assert_eq!(t.of("/mnt/my home/.aws"), ["/home/u/.aws"]);
        assert_eq!(t.of("/etc/passwd"), Vec::<String>::new());
        assert_eq!(t.processes(), ["/proc"]);
        assert!(t.mounted_below("/mnt") && !t.mounted_below("/mnt/my home") && !t.mounted_below("/etc"));
    }

    #[test]
    fn what_is_mounted_from_below_a_path_counts_as_well() {
        let found = aliases(HOST).of("/home/u/.ssh");
        assert!(found.contains(&"/mnt/my home/.ssh".into()) && found.contains(&"/keys/id".into()), "{found:?}");
        assert_eq!(aliases(HOST).itself("/home/u/.ssh"), ["/mnt/my home/.ssh"]);
    }

    #[test]
    fn a_mount_whose_name_is_no_text_counts() {
        let t = BindMounts::of_table(b"1 0 8:2 / / rw - x y rw\n2 1 8:3 / /srv/\xff rw - x y rw\n");
        assert!(t.mounted_below("/srv") && !t.mounted_below("/usr"));
        assert_eq!(t.first_below("/srv"), Some("/srv/\u{fffd}"));
    }

    #[test]
    fn a_file_system_mounted_twice_shows_twice_and_others_do_not() {
        let t = aliases("1 0 8:2 / /a rw - x y rw\n2 0 8:2 / /b rw - x y rw\n3 0 8:3 / /c rw - x y rw\n");
        assert_eq!(t.of("/a/x"), ["/b/x"]);
        assert_eq!(t.of("/c/x"), Vec::<String>::new());
        assert!(aliases("").is_empty() && aliases("1 2 3\n\\").is_empty());
    }
}

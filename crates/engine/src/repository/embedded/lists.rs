//! Lists of files of the work tree that version control keeps, and whether every name in one lies in that work tree.
//!
//! `git commit` reads and writes what `MERGE_RR` and references name, `hg revert --all` renames what the dirstate names, and `hg resolve`
//! writes what the state of a merge names. None of them asks whether a name leads out of the work tree. Pure.

use crate::repository::git_index::is_tracked;

/// What a node of the second version of the dirstate takes, and its description of the tree (hg help internals.dirstate-v2).
const NODE: usize = 44;

/// Of git's `MERGE_RR`: `HASH\tPATH\0`.
pub(super) fn merge_rr(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()).all(|entry| {
        let at = entry.iter().position(|&byte| byte == b'\t');
        at.is_some_and(|at| at + 1 < entry.len() && is_tracked(&entry[at + 1..]))
    })
}

/// Of a reference of git's: where it is a symbolic one, it names another below `refs`. git would take `../../x` as well, and
/// append to `logs/../../x` what is committed.
pub(super) fn reference(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"ref:").is_none_or(|name| {
        let name = name.trim_ascii();
        name.starts_with(b"refs/") && is_tracked(name)
    })
}

/// Of Mercurial's state of a merge, `merge/state`: lines.
pub(super) fn merge_state(bytes: &[u8]) -> bool {
    bytes.split(|byte| matches!(byte, 0 | b'\n')).all(is_below)
}

/// Of its second version, `merge/state2`: a letter, a length and fields for each file.
pub(super) fn merge_state2(bytes: &[u8]) -> bool {
    records(bytes).is_some_and(|all| all.into_iter().all(merge_state))
}

fn records(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?)).ok()?;
        all.push(bytes.get(5..5usize.checked_add(length)?)?);
        bytes = &bytes[5 + length..];
    }
    Some(all)
}

/// Of Mercurial's dirstate. One of the second version says where its tree is: in each of what `data` has of that name. None where
/// it may be missing.
pub(super) fn dirstate(bytes: &[u8], data: impl FnOnce(&str) -> Option<Vec<Vec<u8>>>) -> bool {
    match bytes.strip_prefix(b"dirstate-v2\n") {
        Some(docket) => trees(docket, data).unwrap_or(false),
        None => bytes.is_empty() || entries(bytes).unwrap_or(false),
    }
}

/// A letter, four numbers of which the last is the length of a name, and the name, with what it was copied from behind a NUL;
/// all of it behind the two parents.
fn entries(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes.get(40..)?;
    while !rest.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(rest.get(13..17)?.try_into().ok()?)).ok()?;
        let name = rest.get(17..17usize.checked_add(length)?)?;
        if name.is_empty() || !name.split(|&byte| byte == 0).all(is_below) {
            return Some(false);
        }
        rest = &rest[17 + length..];
    }
    Some(true)
}

fn trees(docket: &[u8], data: impl FnOnce(&str) -> Option<Vec<Vec<u8>>>) -> Option<bool> {
    let described = docket.get(64..64 + NODE)?;
    let name = docket.get(64 + NODE + 5..)?;
    let name = std::str::from_utf8(name.get(..usize::from(*docket.get(64 + NODE + 4)?))?).ok()?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Some(name.is_empty());
    }
    let Some(all) = data(name) else { return Some(true) };
    Some(!all.is_empty() && all.iter().all(|data| tree(described, data).unwrap_or(false)))
}

fn tree(described: &[u8], data: &[u8]) -> Option<bool> {
    let long = |bytes: &[u8], at: usize| -> Option<usize> {
        usize::try_from(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)).ok()
    };
    let short =
        |bytes: &[u8], at: usize| Some(usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let mut left = data.len() / NODE;
    let mut children = vec![(long(described, 0)?, long(described, 4)?)];
    while let Some((start, count)) = children.pop() {
        left = left.checked_sub(count)?;
        for node in 0..count {
            let at = start.checked_add(node * NODE)?;
            let node = data.get(at..at.checked_add(NODE)?)?;
            for (start, length) in [(long(node, 0)?, short(node, 4)?), (long(node, 8)?, short(node, 12)?)] {
                if !is_below(data.get(start..start.checked_add(length)?)?) {
                    return Some(false);
                }
            }
            children.push((long(node, 14)?, long(node, 18)?));
        }
    }
    Some(true)
}

/// Whether a name is relative, and leads nowhere upward nor into a repository's own directory. What is no name at all is one of
/// these as well.
fn is_below(name: &[u8]) -> bool {
    let is_own = |part: &[u8]| [".hg", ".hg.", ".git"].iter().any(|own| part.eq_ignore_ascii_case(own.as_bytes()));
    !name.starts_with(b"/") && name.split(|&byte| byte == b'/').all(|part| part != b".." && !is_own(part))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn entry(name: &[u8]) -> Vec<u8> {
        let mut all = vec![b'n'];
        all.extend([0; 12]);
        all.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
        all.extend(name);
        all
    }

    #[test]
    fn names_lie_in_the_work_tree() {
        let long = [b"../".as_slice(), &[b'a'; 62]].concat();
        for (name, good) in [
            (&b"a"[..], true),
            (b"a/b..c", true),
            (b"..a/b", true),
            (b"b.git/config", true),
            (b"../a", false),
            (b"a/../../b", false),
            (b"/etc/passwd", false),
            (b"a\0../b", false),
            (&long, false),
        ] {
            let both = [vec![0; 40], entry(b"first"), entry(name)].concat();
            assert_eq!(dirstate(&both, |_| None), good, "{name:?}");
            let length = u32::try_from(name.len() + 2).unwrap().to_be_bytes();
            let state = [b"F".as_slice(), &length, name, b"\0u"].concat();
            assert_eq!(merge_state2(&state), good, "{name:?}");
            if !name.contains(&0) {
                let named = [b"00\t".as_slice(), name, b"\0"].concat();
                assert_eq!(merge_rr(&named), good, "{name:?}");
            }
            let data = [name, &node(0, name.len(), 0, 0)].concat();
            if !name.contains(&0) {
                assert_eq!(
                    dirstate(&docket(name.len()), |id| Some(if id == "ab" { vec![data] } else { Vec::new() })),
                    good,
                    "{name:?}"
                );
            }
        }
        assert!(merge_state(b"0a\nu\0a/b\0\n") && !merge_state(b"0a\n../b\0u\n") && !merge_state2(b"F\0\0\0\x09a"));
        for (text, good) in [
            ("0123", true),
            ("ref: refs/heads/main\n", true),
            ("ref: ../../x\n", false),
            ("ref: refs/heads/../../x", false),
            ("ref:config", false),
            ("ref: /etc/x", false),
        ] {
            assert_eq!(reference(text.as_bytes()), good, "{text:?}");
        }
        for (bytes, good) in [(&b""[..], true), (b"\t.git/config\0", false), (b"a", false), (b"a\t\0", false)] {
            assert_eq!(merge_rr(bytes), good, "{bytes:?}");
        }
        for (name, good) in
            [(&b".hg/hgrc"[..], false), (b"s/.HG/hgrc", false), (b".git/config", false), (b".hgsub", true)]
        {
            assert_eq!(dirstate(&[vec![0; 40], entry(name)].concat(), |_| None), good, "{name:?}");
            let (data, start) = tree_with(name);
            assert_eq!(dirstate(&docket(start), |_| Some(vec![data])), good, "{name:?}");
            assert_eq!(merge_state(name), good, "{name:?}");
        }
        assert!(dirstate(b"", |_| None) && !dirstate(b"short", |_| None));
        assert!(!dirstate(&docket(0), |_| Some(Vec::new())), "its tree cannot be read");
        let itself = node(0, 0, 0, 1);
        assert!(!dirstate(&docket(0), |_| Some(vec![itself.clone()])), "a tree that contains itself");
    }

    fn node(start: usize, length: usize, children: usize, count: usize) -> Vec<u8> {
        let mut node = vec![0; NODE];
        node[0..4].copy_from_slice(&u32::try_from(start).unwrap().to_be_bytes());
        node[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        node[14..18].copy_from_slice(&u32::try_from(children).unwrap().to_be_bytes());
        node[18..22].copy_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
        node
    }

    /// A tree that has this name alone, and where its node begins.
    pub(in super::super) fn tree_with(name: &[u8]) -> (Vec<u8>, usize) {
        ([name, &node(0, name.len(), 0, 0)].concat(), name.len())
    }

    /// One whose only node begins here.
    pub(in super::super) fn docket(start: usize) -> Vec<u8> {
        let start = u32::try_from(start).unwrap().to_be_bytes();
        let described = [start.as_slice(), &1u32.to_be_bytes(), &[0; NODE - 8]].concat();
        [b"dirstate-v2\n".as_slice(), &[0; 64], &described, &[0; 4], &[2], b"ab"].concat()
    }
}

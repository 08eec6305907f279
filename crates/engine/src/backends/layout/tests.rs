//! Layouts of a table of files, without a host.

use cofferdam_policy::Root;

use super::*;
use crate::plan::facts::FactsTable;
use crate::plan::own_places::OwnPlace;

fn policy(access: Access) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["sh".into()];
    policy.filesystem.mounts =
        vec![Mount::Bind { source: "/home/u/w".into(), target: "/work".into(), access, exec: true, optional: false }];
    policy
}

fn targets(layout: &MountLayout, wanted: impl Fn(&Item) -> Option<&String>) -> Vec<String> {
    layout.items.iter().filter_map(wanted).cloned().collect()
}

#[test]
fn protected_paths_that_exist_are_sealed_and_what_leads_to_them_is_pinned() {
    let host = FactsTable::usual(&["/home/u/w/.git/hooks/", "/home/u/w/.bashrc"]);
    let layout = layout(&policy(Access::ReadWrite), &host).unwrap();
    let sealed = targets(&layout, |i| match i {
        Item::Bind { target, writable: false, .. } if target.starts_with("/work") => Some(target),
        _ => None,
    });
    assert_eq!(sealed, ["/work/.bashrc", "/work/.git/hooks"]);
    let pinned = targets(&layout, |i| match i {
        Item::Bind { target, writable: true, .. } => Some(target),
        _ => None,
    });
    assert_eq!(pinned, ["/work", "/work/.git"]);
    assert!(layout.unheld_protected.contains(&"/work/.zshrc".to_owned()), "it could be made");
    assert!(!layout.unheld_protected.contains(&"/work/.bashrc".to_owned()));
}

#[test]
fn a_mount_is_made_on_no_link_and_behind_none() {
    let mut host = FactsTable::usual(&["/home/u/w/", "/usr/bin/", "/usr/bin/perl", "/home/u/place/"]);
    host.add("/home/u/link", FileKind::Link("place".into()));
    for (root, target, leads) in [
        (Root::Host, "/home/u/link", Some("/home/u/place")),
        (Root::Host, "/home/u/place", None),
        (Root::Minimal, "/bin", Some("/usr/bin")),
        (Root::Minimal, "/usr/bin", None),
        (Root::Minimal, "/work", None),
    ] {
        let mut policy = policy(Access::ReadOnly);
        policy.filesystem.root = root;
        let Mount::Bind { target: at, .. } = &mut policy.filesystem.mounts[0] else { unreachable!() };
        *at = target.into();
        let hint = layout(&policy, &host).err().and_then(|refusal| refusal.hint);
        assert_eq!(hint, leads.map(|leads| format!("mount it where that leads: {leads}")), "{target}");
    }
}

#[test]
fn what_is_mounted_below_a_source_is_seen_whatever_link_it_is_named_by() {
    let mut host = FactsTable::usual(&["/home/u/w/", "/home/u/w/disk/"]);
    host.add("/home/u/link", FileKind::Link("w".into()));
    host.mounted("/home/u/w/disk");
    for (named, nested) in [("/home/u/w", true), ("/home/u/link", true), ("/home/u/w/disk", false)] {
        let mut policy = policy(Access::ReadOnly);
        let Mount::Bind { source, .. } = &mut policy.filesystem.mounts[0] else { unreachable!() };
        *source = named.into();
        let layout = layout(&policy, &host).unwrap();
        assert_eq!(layout.nested_mounts, if nested { vec![named.to_owned()] } else { Vec::new() }, "{named}");
    }
}

#[test]
fn an_optional_mount_is_left_out_only_where_nothing_is() {
    let mut host = FactsTable::usual(&["/home/u/w/", "/home/u/file"]);
    host.add("/home/u/hidden", FileKind::Unknown);
    host.add("/home/u/fifo", FileKind::Special);
    let with = |source: &str, optional: bool| {
        let mut policy = policy(Access::ReadOnly);
        if let Mount::Bind { source: from, optional: is, .. } = &mut policy.filesystem.mounts[0] {
            (*from, *is) = (source.into(), optional);
        }
        layout(&policy, &host)
    };
    let there = with("/home/u/w", true).unwrap();
    let bound = |l: &MountLayout| l.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target == "/work"));
    assert!(bound(&there) && there.left_out.is_empty());
    let gone = with("/home/u/gone", true).unwrap();
    assert!(!bound(&gone) && gone.view.covering("/work").is_none_or(|place| place.target == "/"));
    assert_eq!(gone.left_out, ["/home/u/gone"]);
    assert!(with("/home/u/gone", false).unwrap_err().message.contains("does not exist"));
    for there in ["/home/u/hidden", "/home/u/fifo", "/home/u/file/below"] {
        assert!(with(there, true).is_err(), "{there}");
    }
}

#[test]
fn nothing_needs_holding_in_what_cannot_be_written() {
    let host = FactsTable::usual(&["/home/u/w/.git/hooks/"]);
    let layout = layout(&policy(Access::ReadOnly), &host).unwrap();
    assert!(layout.unheld_protected.is_empty() && layout.linked.is_empty());
    assert!(!layout.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target.contains(".git"))));
}

#[test]
fn a_denied_path_is_masked_wherever_it_shows() {
    let mut policy = policy(Access::ReadWrite);
    policy.filesystem.root = Root::Host;
    policy.filesystem.deny = vec!["/home/u/w/secret".into(), "/home/u/w/later".into()];
    let layout = layout(&policy, &FactsTable::usual(&["/home/u/w/secret"])).unwrap();
    let masks = targets(&layout, |i| match i {
        Item::Mask { target, .. } if !target.starts_with("/proc") => Some(target),
        _ => None,
    });
    assert_eq!(masks, ["/home/u/w/secret", "/work/secret"]);
    assert_eq!(layout.unheld_deny, ["/home/u/w/later"], "it could be made through /work");
}

#[test]
fn names_in_a_containers_own_memory_are_its_own() {
    let mut policy = policy(Access::ReadWrite);
    policy.filesystem.deny = vec!["/tmp/home/.aws".into(), "/home/u/w/later".into()];
    let host = FactsTable::usual(&["/home/u/w/"]);
    assert_eq!(layout(&policy, &host).unwrap().unheld_deny, ["/tmp/home/.aws", "/home/u/w/later"]);
    assert_eq!(
        in_container(&policy, &host).unwrap().unheld_deny,
        ["/home/u/w/later"],
        "it could be made through /work"
    );
}

#[test]
fn a_denied_path_of_an_image_is_masked_whatever_it_is_and_a_text_as_a_file() {
    let mut policy = policy(Access::ReadOnly);
    policy.filesystem.root = Root::Image("alpine".into());
    policy.filesystem.deny = ["/etc/secret", "/etc/hosts", "/dev/null", "/work/secret"].map(String::from).into();
    let host = FactsTable::usual(&["/home/u/w/secret"]);
    let masks = |layout: &MountLayout| -> Vec<(String, bool)> {
        let mask = |item: &Item| match item {
            Item::Mask { target, directory } if !target.starts_with("/proc") => Some((target.clone(), *directory)),
            _ => None,
        };
        layout.items.iter().filter_map(mask).collect()
    };
    let layout = in_container(&policy, &host).unwrap();
    let expected = [("/etc/hosts", false), ("/etc/secret", true), ("/work/secret", false)];
    assert_eq!(masks(&layout), expected.map(|(path, directory)| (path.to_owned(), directory)));
    assert!(layout.unheld_deny.is_empty());
    let at = |layout: &MountLayout, path: &str| {
        let here = |item: &&Item| match item {
            Item::Bind { target, .. } | Item::Text { target, .. } | Item::Mask { target, .. } => target == path,
            _ => false,
        };
        layout.items.iter().filter(here).count()
    };
    assert_eq!((at(&layout, "/etc/hosts"), at(&layout, "/etc/resolv.conf")), (1, 1));
    policy.filesystem.root = Root::Minimal;
    policy.filesystem.deny = ["/etc/passwd", "/srv/nothing"].map(String::from).into();
    assert_eq!(masks(&in_container(&policy, &host).unwrap()), [("/etc/passwd".to_owned(), false)]);
    let tools = super::layout(&policy, &host).unwrap();
    assert_eq!((masks(&tools), at(&tools, "/etc/passwd")), (vec![("/etc/passwd".to_owned(), false)], 1));
}

#[test]
fn cofferdams_own_files_are_out_of_reach_or_nothing_starts() {
    let own = |path: &str| OwnPlace { path: path.into(), hidden: false, trail: false };
    // Scratch space of the sandbox has the same name, and nothing of the host's in it.
    let mut host = FactsTable::usual(&["/home/u/w/", "/var/tmp/home/"]);
    host.own(own("/var/tmp/home/.cache/cofferdam"));
    layout(&policy(Access::ReadWrite), &host).unwrap();
    // In a writable volume the name could be made, whatever it is called inside.
    host.own(own("/home/u/w/.cache/cofferdam"));
    let refusal = layout(&policy(Access::ReadWrite), &host).unwrap_err();
    assert!(refusal.message.contains("/home/u/w/.cache/cofferdam"), "{}", refusal.message);
    layout(&policy(Access::ReadOnly), &host).unwrap();
}

#[test]
fn the_program_is_found_through_the_roots_links() {
    let host = FactsTable::usual(&["/usr/bin/data"]);
    let mut policy = policy(Access::ReadOnly);
    policy.filesystem.mounts.clear();
    let found = |policy: &Policy| layout(policy, &host).unwrap().program(policy, &host);
    assert_eq!(found(&policy), Ok(Some("/usr/bin/sh".into())));
    policy.command.argv = vec!["/bin/sh".into()];
    assert_eq!(found(&policy), Ok(Some("/bin/sh".into())));
    policy.command.argv = vec!["nothing".into()];
    assert_eq!(found(&policy).unwrap_err().code, 127);
    policy.command.argv = vec!["/usr/bin/data".into()];
    assert_eq!(found(&policy).unwrap_err().code, 126);
    policy.command.argv = vec!["/tmp/made".into()];
    assert_eq!(found(&policy), Ok(None), "scratch space can hold anything by then");
}

#[test]
fn scratch_space_adds_up_to_its_limit() {
    let mut policy = policy(Access::ReadOnly);
    policy.filesystem.mounts.clear();
    policy.limits.tmpfs_mb = 64;
    let sizes = |layout: &MountLayout| -> Vec<(String, u64)> {
        let sized = layout.items.iter().filter_map(|item| match item {
            Item::Tmpfs { bytes, target, .. } if target != "/sys" => Some((target.clone(), *bytes)),
            _ => None,
        });
        sized.collect()
    };
    let layout = layout(&policy, &FactsTable::usual(&[])).unwrap();
    assert_eq!(sizes(&layout).iter().map(|(_, bytes)| bytes).sum::<u64>(), 64 << 20);
    // A container's /tmp has the size of the limit, as a jail's has, and a small /dev/shm besides.
    policy.filesystem.root = Root::Minimal;
    let layout = in_container(&policy, &FactsTable::usual(&[])).unwrap();
    assert_eq!(sizes(&layout), [("/tmp".to_owned(), 64 << 20), ("/dev/shm".to_owned(), 1 << 20)]);
}

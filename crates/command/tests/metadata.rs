//! Metadata, on real processes: the object behind a name counts, and no bit or attribute that grants privileges can be
//! set. Each denial has its control on the same victim.

#![cfg(target_os = "linux")]

mod probe;

use probe::{Scratch, furnish, picture, plain, restricted, run, versions};

#[tokio::test]
async fn set_id_bits_and_file_capabilities_cannot_be_set() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        furnish(&data);
        let d = data.display();
        for words in
            [format!("chmod-setuid {d}/victim"), format!("create-setuid {d}/new"), format!("setcap {d}/victim")]
        {
            assert_eq!(run(restricted(abi, &data), &words).await, "EPERM", "{abi}: {words}");
        }
        assert_eq!(run(plain(), &format!("chmod-setuid {d}/victim")).await, "done");
    }
}

#[tokio::test]
async fn metadata_rules_apply_to_the_object_not_its_name() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&outside);
    furnish(&data);
    std::os::unix::fs::symlink(outside.join("victim"), data.join("soft")).unwrap();
    std::os::unix::fs::symlink(data.join("victim"), outside.join("soft")).unwrap();
    let before = picture(&outside);
    let abi = *versions().last().unwrap();
    let (o, d) = (outside.display(), data.display());
    for words in [
        format!("chmod {d}/soft"),
        format!("chmod {d}/../outside/victim"),
        format!("chmod /proc/self/root{o}/victim"),
        format!("chmod {o}/"),
        format!("lchown {o}/soft"),
        format!("setxattr {d}/soft"),
    ] {
        let refused = run(restricted(abi, &data), &words).await;
        assert!(["EPERM", "ELOOP"].contains(&refused.as_str()), "{words}: {refused}");
        assert_eq!(picture(&outside), before, "{words}");
    }
    for words in [
        format!("chmod {d}/../data/victim"),
        format!("lchown {d}/soft"),
        format!("lutimes {d}/soft"),
        format!("chmod {o}/soft"),
    ] {
        assert_eq!(run(restricted(abi, &data), &words).await, "done", "{words}");
        assert_eq!(picture(&outside), before, "{words}: what the link leads to");
    }
    // A link has no attributes and no mode of its own, and what it leads to is not taken for it.
    for words in [format!("lsetxattr {d}/soft"), format!("chmod-no-follow {d}/soft")] {
        assert_ne!(run(restricted(abi, &data), &words).await, "done", "{words}");
        assert_eq!(picture(&outside), before, "{words}");
    }
}

#[tokio::test]
async fn a_race_on_a_name_changes_nothing_outside() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&outside);
    furnish(&data);
    let before = picture(&outside);
    let (o, d) = (outside.display(), data.display());
    let words = format!("race {d}/link {d}/victim {o}/victim");
    let abi = *versions().last().unwrap();
    assert_eq!(run(restricted(abi, &data), &words).await, "done");
    assert_eq!(picture(&outside), before);
    std::fs::remove_file(data.join("link")).unwrap();
    assert_eq!(run(plain(), &words).await, "done");
    assert_ne!(picture(&outside), before, "without walls it is changed");
}

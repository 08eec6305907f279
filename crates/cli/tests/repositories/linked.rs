//! Linked work trees over two runs: what the first writes in `.git/worktrees` lets the second write none of their `.git` files.

use super::attacks::EMBED;
use super::common::open_directory;
use super::{done, inside, renamed, shell, there};

const VICTIM: &str = "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                      git worktree add -q zz && git worktree add -q ../out";

/// Another repository in the place of the one that the work tree `zz` is of.
const REPLACE: &str = "chmod 755 zz; git config --global --add safe.directory '*'; git init -q e; cd e; git commit -q --allow-empty -m x; \
                       git config core.fsmonitor 'PAYLOAD'; cd ..; rm -f zz/.git; echo \"gitdir: $PWD/e/.git\" >zz/.git";

/// Directories as that of a linked work tree, each with a file `.git` that leads back.
const DECOYS: &str = "i=0; while [ $i -lt 80 ]; do mkdir -p .git/worktrees/aa$i dec/aa$i; \
                      cp .git/worktrees/zz/HEAD .git/worktrees/zz/commondir .git/worktrees/aa$i/; \
                      echo \"gitdir: $PWD/.git/worktrees/aa$i\" >dec/aa$i/.git; \
                      echo \"$PWD/dec/aa$i/.git\" >.git/worktrees/aa$i/gitdir; i=$((i+1)); done";

/// What the first run does, and the second.
#[track_caller]
fn holds(name: &str, first: &str, second: &str) {
    let second = second.replace("EMBED", EMBED);
    for sandboxed in [false, true] {
        let root = open_directory();
        let at = root.path();
        done(at, at, VICTIM);
        let repo = at.join("repo");
        let marker = at.join("PAYLOAD-RAN");
        let second = second.replace("PAYLOAD", &format!("touch {}; false", marker.display()));
        let mut said = String::new();
        for (script, ran) in [(first, "ran1"), (&second, "ran2")] {
            if sandboxed {
                let output = inside(&repo, repo.to_str().unwrap(), &format!("({script}); touch {ran}"));
                said += &String::from_utf8_lossy(&output.stderr);
                assert!(repo.join(ran).exists(), "{name}: the program did not run, or could not write: {said}");
            } else {
                shell(&repo, at, script);
            }
        }
        std::fs::remove_file(&marker).ok();
        shell(&repo.join("zz"), at, "git status");
        assert_eq!(marker.exists(), !sandboxed, "{name}, in a sandbox: {sandboxed}: {said}");
    }
}

#[test]
fn file_git_of_a_linked_work_tree_cannot_be_replaced_in_two_runs() {
    if !there("git") {
        return;
    }
    for (name, first) in [
        (
            "another file that leads back",
            "mkdir dec; echo \"gitdir: $PWD/.git/worktrees/zz\" >dec/.git; echo \"$PWD/dec/.git\" >.git/worktrees/zz/gitdir",
        ),
        (
            "the same, and a work tree that cannot be entered",
            "mkdir dec; echo \"gitdir: $PWD/.git/worktrees/zz\" >dec/.git; \
             echo \"$PWD/dec/.git\" >.git/worktrees/zz/gitdir; chmod 000 zz",
        ),
        ("a file that is not there", "echo \"$PWD/none/.git\" >.git/worktrees/zz/gitdir"),
        ("a path that nothing is at", "echo /nowhere/at/all/.git >.git/worktrees/zz/gitdir"),
        ("the same file, by a link", "ln -s zz l; echo \"$PWD/l/.git\" >.git/worktrees/zz/gitdir"),
        ("no gitdir", "rm .git/worktrees/zz/gitdir"),
        ("a directory", "rm .git/worktrees/zz/gitdir; mkdir -p .git/worktrees/zz/gitdir/x"),
        ("a link", "rm .git/worktrees/zz/gitdir; ln -s ../../HEAD .git/worktrees/zz/gitdir"),
        ("more work trees than were looked at", DECOYS),
    ] {
        holds(name, first, REPLACE);
    }
}

#[test]
fn index_of_a_linked_work_tree_is_looked_at_beside_many_others() {
    if there("git") {
        holds("an entry in the index", DECOYS, "cd zz; EMBED");
    }
}

#[test]
fn what_git_writes_for_linked_work_trees_stays() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, VICTIM);
    let repo = at.join("repo");
    let read = |name: &str| std::fs::read_to_string(repo.join(".git/worktrees").join(name).join("gitdir")).unwrap();
    let before = (read("zz"), read("out"));
    let script = "git config --global --add safe.directory '*'; set -e; git worktree add -q inner; \
                  cd inner; git commit -q --allow-empty -m i; cd ../zz; git commit -q --allow-empty -m z; git worktree repair";
    for _ in 0..2 {
        let ran = inside(&repo, repo.to_str().unwrap(), script);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && !said.contains(".disabled"), "{said}");
        assert_eq!((read("zz"), read("out")), before);
        done(&repo.join("inner"), at, "git status");
        done(&repo, at, "git worktree remove inner && git branch -D inner");
    }
    // Elsewhere in the sandbox git writes paths of the sandbox once a day, which are none outside.
    done(&repo, at, "touch -d '2 days ago' .git/worktrees/zz/gitdir");
    let ran = inside(&repo, "/b", "echo /b/zz/.git >.git/worktrees/zz/gitdir; echo ran");
    assert_eq!((String::from_utf8_lossy(&ran.stdout).as_ref(), ran.stderr.as_slice()), ("ran\n", &b""[..]), "{ran:?}");
    assert_eq!((read("zz"), read("out")), before);
    // One that leads to another work tree is said, and not lost.
    let ran = inside(
        &repo,
        repo.to_str().unwrap(),
        "mkdir dec; echo \"gitdir: $PWD/.git/worktrees/zz\" >dec/.git; echo \"$PWD/dec/.git\" >.git/worktrees/zz/gitdir",
    );
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("worktrees/zz/gitdir is now "), "{said}");
    assert_eq!((read("zz"), read("out")), before);
    assert!(std::fs::read_to_string(renamed(&repo.join(".git/gitdir"))).unwrap().ends_with("/dec/.git\n"));
}

#[test]
fn hooks_of_an_added_work_tree_that_are_the_repositorys_stay() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    let victim = "git init -q -b main repo && cd repo && mkdir -p tools/hooks/lib && printf '#!/bin/sh\n' >tools/hooks/pre-commit && \
                  touch tools/hooks/lib/x && \
                  git add . && git config core.hooksPath tools/hooks && git commit -q -m a";
    done(at, at, victim);
    let repo = at.join("repo");
    let script = "git config --global --add safe.directory '*'; git worktree add -q wt";
    for (change, stays) in [
        ("true", true),
        ("echo true >>wt/tools/hooks/pre-commit", false),
        ("echo true >>wt/tools/hooks/lib/x", false),
        ("ln wt/tools/hooks/pre-commit further", false),
        ("mkdir -p .git/worktrees/wt/tools/hooks && touch .git/worktrees/wt/tools/hooks/update", false),
    ] {
        let ran = inside(&repo, repo.to_str().unwrap(), &format!("{script} && {change}"));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{change}: {said}");
        assert_eq!(said.contains("worktrees/wt is now "), !stays, "{change}: {said}");
        assert_eq!(repo.join(".git/worktrees/wt").exists(), stays, "{change}");
        if stays {
            done(&repo, at, "git worktree remove wt && git branch -q -D wt");
        } else {
            done(&repo, at, "rm -rf wt .git/wt.disabled* && git branch -q -D wt");
        }
    }
}

#[test]
fn link_and_its_entry_in_the_index_that_were_there_before_stay() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    let victim = "git init -q -b main own && git -C own commit -q --allow-empty -m o && git -C own config core.fsmonitor false && \
                  git init -q -b main repo && cd repo && \
                  mkdir in && git init -q in/plain && git -C in/plain commit -q --allow-empty -m p && ln -s ../own l && ln -s in k && \
                  h=$(git -C l rev-parse HEAD) && git update-index --add --cacheinfo 160000,$h,l --add --cacheinfo 160000,$h,k/plain && \
                  git commit -q -m a";
    done(at, at, victim);
    let repo = at.join("repo");
    let own = "git config --global --add safe.directory '*'; set -e";
    let run = |script: &str| {
        let ran = inside(&repo, repo.to_str().unwrap(), &format!("{own}; {script}; echo ran"));
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{script}: {ran:?}");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    for script in [
        "true",
        "git -C in/plain commit -q --allow-empty -m b",
        "git -C in/plain branch x; git -C in/plain clone -q . ../c",
    ] {
        let said = run(script);
        assert!(!said.contains(" is now "), "{script}: {said}");
        assert!(repo.join("l").is_symlink() && repo.join("k").is_symlink(), "{script}");
    }
}

#[test]
fn remote_in_the_volume_takes_what_a_run_pushes() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    let victim = "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q --bare up.git && \
                  printf '#!/bin/sh\n' >up.git/hooks/post-receive && git remote add origin ./up.git && git push -q -u origin main";
    done(at, at, victim);
    let repo = at.join("repo");
    let run = |script: &str| {
        let script = format!("git config --global --add safe.directory '*'; {script}; echo ran");
        let ran = inside(&repo, repo.to_str().unwrap(), &script);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{script}: {ran:?}");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let said = run("git commit -q --allow-empty -m b; git push -q; git -C up.git gc -q");
    assert!(!said.contains(".disabled") && repo.join("up.git/HEAD").exists(), "{said}");
    let said = run("echo true >>up.git/hooks/post-receive");
    assert!(said.contains("up.git.disabled") && said.contains("hint: ") && !repo.join("up.git").exists(), "{said}");
}

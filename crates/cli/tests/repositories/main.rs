//! What git, Mercurial and others do outside after a run could write in a work tree: they obey nothing that the run planted,
//! and version control inside works as usual.
//!
//! Every attack runs once without a sandbox first, where its payload must be executed: so each test shows that its victim is
//! one.

#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod interrupted;
mod linked;
mod mercurial_attacks;
mod moved;
mod named_attacks;
mod push_attacks;

use std::path::Path;
use std::process::{Command, Output};

use attacks::{Attack, BARE, BEHIND, EMBED, GIT, INDEX, LINKED, REPOSITORY};
use common::{cofferdam, open_directory};
use mercurial_attacks::{COMMITTED, ENTRY, HG, LINKS, NAMED, SUBREPOSITORY};
use named_attacks::{ELSEWHERE, HG_PATHS, NAMED_BY_OTHERS};
use push_attacks::{ADDRESSES, ADDRESSES_OF_EMBEDDED, ADDRESSES_OF_MADE, HOOKED, PUSH, TO_PUSH};

/// Whether a program is there; that it is missing is a failure where all have to be.
fn there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
    assert!(found || !must, "{program} must be installed here");
    if !found {
        eprintln!("skipped: no {program}");
    }
    found
}

/// A shell in a directory, with an identity for commits and a home of its own.
fn shell(at: &Path, home: &Path, script: &str) -> Output {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(at);
    for (name, value) in identity() {
        command.env(name, value);
    }
    command.env("HOME", home).env("OUT", home).output().unwrap()
}

fn identity() -> [(&'static str, &'static str); 5] {
    [
        ("GIT_AUTHOR_NAME", "t"),
        ("GIT_AUTHOR_EMAIL", "t@example.org"),
        ("GIT_COMMITTER_NAME", "t"),
        ("GIT_COMMITTER_EMAIL", "t@example.org"),
        ("HGUSER", "t"),
    ]
}

#[track_caller]
fn done(at: &Path, home: &Path, script: &str) {
    let output = shell(at, home, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
}

/// The same script in a sandbox, with this volume as its working directory.
fn inside(volume: &Path, at: &str, script: &str) -> Output {
    inside_of(cofferdam(), volume, at, script)
}

fn inside_of(mut command: Command, volume: &Path, at: &str, script: &str) -> Output {
    command.arg("run").arg("-v").arg(format!("{}:{at}:rw", volume.display())).args(["-w", at, "-e", "OUT=/nowhere"]);
    for (name, value) in identity() {
        command.arg("-e").arg(format!("{name}={value}"));
    }
    // git asks whose a work tree is, and as root the sandbox's user is another one.
    command.args(["-e", "HOME=/tmp", "--", "/bin/sh", "-c", script]).output().unwrap()
}

/// The only name that a file has got.
fn renamed(was: &Path) -> std::path::PathBuf {
    let start = format!("{}.disabled-", was.file_name().unwrap().to_str().unwrap());
    let all = std::fs::read_dir(was.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let found: Vec<_> = all.filter(|entry| entry.file_name().to_str().unwrap().starts_with(&start)).collect();
    assert_eq!(found.len(), 1, "{}: {found:?}", was.display());
    found[0].path()
}

fn holds(attacks: &[Attack]) {
    for attack in attacks {
        holds_at(attack, None);
    }
}

/// The same for one attack, whose volume the sandbox has at this place, or else where it is outside.
fn holds_at(attack: &Attack, place: Option<&str>) {
    let script = attack.attack.replace("BEHIND", BEHIND);
    let script = script
        .replace("HOOKED", HOOKED)
        .replace("BARE", BARE)
        .replace("EMBED", EMBED)
        .replace("TO_PUSH", TO_PUSH)
        .replace("NAMED", NAMED)
        .replace("ENTRY", ENTRY);
    // Without a sandbox it does what it is for.
    let control = open_directory();
    let at = control.path();
    done(at, at, attack.victim);
    let marker = at.join("PAYLOAD-RAN");
    let planted = script.replace("PAYLOAD", &format!("touch {}; false", marker.display()));
    shell(&at.join(attack.volume), at, &planted);
    shell(&at.join(attack.outside.0), at, attack.outside.1);
    assert!(marker.exists(), "{}: the attack does nothing by itself", attack.name);
    // With one, it does nothing.
    let root = open_directory();
    let at = root.path();
    done(at, at, attack.victim);
    let marker = at.join("PAYLOAD-RAN");
    let planted = script.replace("PAYLOAD", &format!("touch {}; false", marker.display()));
    let volume = at.join(attack.volume);
    let mut command = cofferdam();
    // Where a path leads that depends on a working directory is asked there by cofferdam as well as by git.
    command.env("HOME", at).current_dir(&volume);
    let script = format!("{planted}\necho went on >ran || exit 9");
    let ran = inside_of(command, &volume, place.unwrap_or(volume.to_str().unwrap()), &script);
    let said = String::from_utf8_lossy(&ran.stderr);
    let went_on = shell(&volume, at, "find . -name ran | grep -q .").status.success();
    assert!(went_on, "{}: the program did not run, or could not write: {said}", attack.name);
    shell(&at.join(attack.outside.0), at, attack.outside.1);
    assert!(!marker.exists(), "{}: the payload ran outside: {said}", attack.name);
}

#[test]
fn git_outside_obeys_nothing_that_a_run_planted() {
    if there("git") {
        holds(GIT);
    }
}

#[test]
fn repository_mounted_at_another_path_is_protected() {
    if !there("git") {
        return;
    }
    let alone: Vec<&Attack> = GIT.iter().filter(|attack| attack.name.contains("mounted by itself")).collect();
    assert_eq!(alone.len(), 4);
    for attack in alone {
        holds_at(attack, Some("/b"));
    }
}

#[test]
fn git_outside_writes_through_no_link_that_a_run_planted() {
    if there("git") {
        holds(LINKS);
    }
}

#[test]
fn a_link_that_was_there_before_and_those_of_the_tools_are_left() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, REPOSITORY);
    let repo = at.join("repo");
    done(&repo, at, "touch ../elsewhere; ln -s ../../elsewhere .git/before; mkdir .git/mine");
    let script = "ln -s ../HEAD .git/mine/inside; ln -s nothing .git/dangling; ln -s ../../elsewhere .git/after; \
                  ln -s host:12 .git/wlock; ln -s checklink-target .git/checklink; echo ran";
    let ran = inside(&repo, repo.to_str().unwrap(), script);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n", "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains(".git/after is now ") && said.contains(".git/after.disabled"), "{said}");
    let is_link = |name: &str| repo.join(name).is_symlink();
    for left in [".git/before", ".git/wlock", ".git/checklink"] {
        assert!(is_link(left), "{left}: {said}");
    }
    // What a tool writes through a link of the repository may be its configuration.
    for disabled in [".git/after", ".git/mine/inside", ".git/dangling"] {
        assert!(!is_link(disabled) && renamed(&repo.join(disabled)).is_symlink(), "{disabled}: {said}");
    }
    assert!(ran.status.success(), "{said}");
    // Once it has its other name, it is what was there before.
    let ran = inside(&repo, repo.to_str().unwrap(), "true");
    assert_eq!((ran.status.code(), ran.stderr.len()), (Some(0), 0), "{ran:?}");
}

/// A repository with a directory that is deeper than is looked at does not fail every run, and hides no link.
#[test]
fn repository_too_deep_to_search_fails_no_later_run() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, REPOSITORY);
    let repo = at.join("repo");
    let deep = format!("mkdir -p .git/{}", "d/".repeat(45));
    let run = |script: &str| {
        let ran = inside(&repo, repo.to_str().unwrap(), script);
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    let (code, said) = run(&deep);
    assert!(code == Some(125) && said.contains("too deep"), "the program made it: {said}");
    let (code, said) = run("true");
    assert!(code == Some(0) && said.contains("links in ") && said.contains("too deep"), "it was there: {said}");
    let (code, said) = run("ln -sf ../../elsewhere .git/COMMIT_EDITMSG");
    assert!(code == Some(0) && said.contains(".git/COMMIT_EDITMSG.disabled"), "a link beside it: {said}");
    assert!(!repo.join(".git/COMMIT_EDITMSG").is_symlink(), "{said}");
    std::fs::remove_dir_all(repo.join(".git/d")).unwrap();
    assert_eq!(run("true"), (Some(0), String::new()));
}

#[test]
fn git_outside_obeys_no_repository_that_a_run_put_in_the_index() {
    if there("git") {
        holds(INDEX);
    }
}

#[test]
fn git_outside_obeys_no_repository_behind_a_link_that_a_run_put_in_the_index() {
    if there("git") {
        holds(LINKED);
    }
}

#[test]
fn push_outside_runs_no_hooks_that_a_run_planted() {
    if there("git") {
        holds(PUSH);
    }
}

#[test]
fn push_outside_runs_no_hooks_that_a_run_planted_wherever_the_address_stands() {
    if there("git") {
        holds(ADDRESSES);
    }
}

#[test]
fn remote_that_a_run_leaves_as_it_was_is_pushed_to_wherever_the_address_stands() {
    if !there("git") {
        return;
    }
    // Links and files that a run puts in the place are none of these.
    let remotes = ADDRESSES.iter().filter(|attack| attack.attack == HOOKED);
    for attack in remotes {
        let root = open_directory();
        let at = root.path();
        done(at, at, attack.victim);
        let repo = at.join("repo");
        done(&repo, at, "printf '#!/bin/sh\\n' >up.git/hooks/post-receive; chmod +x up.git/hooks/post-receive");
        let mut command = cofferdam();
        command.env("HOME", at);
        let script =
            "git config --global --add safe.directory '*'; git push -q ./up.git HEAD:refs/heads/other; echo ran";
        let ran = inside_of(command, &repo, repo.to_str().unwrap(), script);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.stdout == b"ran\n" && !said.contains(".disabled"), "{}: {ran:?}", attack.name);
        shell(&repo, at, attack.outside.1);
        done(
            &repo,
            at,
            "test $(git rev-parse HEAD) = $(git -C up.git rev-parse main) && git -C up.git rev-parse -q --verify other",
        );
    }
}

#[test]
fn push_outside_from_a_submodule_runs_no_hooks_that_a_run_planted_wherever_the_address_stands() {
    if there("git") {
        holds(ADDRESSES_OF_EMBEDDED);
    }
}

#[test]
fn push_outside_from_a_new_repository_runs_no_hooks_that_a_run_planted() {
    if there("git") {
        holds(ADDRESSES_OF_MADE);
    }
}

#[test]
fn submodule_stays_whose_remote_a_run_leaves_as_it_was() {
    if !there("git") {
        return;
    }
    for attack in ADDRESSES_OF_EMBEDDED {
        let root = open_directory();
        let at = root.path();
        done(at, at, attack.victim);
        let repo = at.join("repo");
        let hook = "cd $(dirname $(find . -name up.git)) && printf '#!/bin/sh\\ntouch %s' $OUT/own >up.git/hooks/post-receive && \
                    chmod +x up.git/hooks/post-receive";
        done(&repo, at, hook);
        let mut command = cofferdam();
        command.env("HOME", at);
        let script = "git config --global --add safe.directory '*'; cd s*; git commit -q --allow-empty -m new; \
                      up=$(find $PWD/.. -name up.git | head -n 1); git push -q $up HEAD:refs/heads/other; echo ran";
        let ran = inside_of(command, &repo, repo.to_str().unwrap(), script);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.stdout == b"ran\n" && !said.contains(".disabled"), "{}: {ran:?}", attack.name);
        done(&repo, at, "git -C $(find . -name up.git) rev-parse -q --verify other");
        shell(&at.join(attack.outside.0), at, attack.outside.1);
        assert!(at.join("own").exists(), "{}: the hook that was there runs", attack.name);
    }
}

/// A mirror of the caller's, with hooks, in no volume.
#[test]
fn new_repository_stays_whose_address_the_caller_has_lead_out_of_the_volume() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, REPOSITORY);
    done(
        at,
        at,
        "git init -q --bare mirror/up.git && git init -q --bare mirror/o.git && for r in up o; do \
         printf '#!/bin/sh\ntouch %s' $OUT/own >mirror/$r.git/hooks/post-receive; chmod +x mirror/$r.git/hooks/post-receive; done && \
         git config --file .gitconfig url.$PWD/mirror/.insteadOf https://x/ && git config --file .gitconfig remote.o.url $PWD/mirror/o.git",
    );
    let repo = at.join("repo");
    let mut command = cofferdam();
    command.env("HOME", at);
    let script = "git config --global --add safe.directory '*'; set -e; git init -q -b main made; cd made; git commit -q --allow-empty -m m; \
                  git remote add origin https://x/up.git; cd ..; git add made 2>/dev/null; git commit -q -m made; echo ran";
    let ran = inside_of(command, &repo, repo.to_str().unwrap(), script);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.stdout == b"ran\n" && !said.contains(".disabled"), "{ran:?}");
    done(&repo.join("made"), at, "git push -q origin main && test -e $OUT/own");
}

#[test]
fn git_outside_runs_nothing_of_a_run_that_another_repositorys_configuration_names() {
    if there("git") {
        holds(NAMED_BY_OTHERS);
    }
}

/// What stands for the work of a run that has nothing to do with these repositories.
const UNRELATED: &str = "git config --global --add safe.directory '*'; set -e; echo x >unrelated; mkdir -p more; echo x >more/x; \
                         for d in . up z wt/sub; do [ ! -e $d/.git ] || (cd $d; echo x >new; git add new; git commit -q -m new); done; \
                         [ ! -d up.git ] || git push -q ./up.git HEAD:refs/heads/inside; echo ran";

#[test]
fn repository_stays_whose_configuration_names_what_a_run_left_as_it_was() {
    if !there("git") {
        return;
    }
    for attack in NAMED_BY_OTHERS {
        let root = open_directory();
        let at = root.path();
        done(at, at, attack.victim);
        let repo = at.join("repo");
        let ran = inside(&repo, repo.to_str().unwrap(), UNRELATED);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.stdout == b"ran\n" && !said.contains(".disabled"), "{}: {ran:?}", attack.name);
        done(&at.join(attack.outside.0), at, attack.outside.1);
    }
}

/// The name of a directory of hooks that cannot be given to what protects it.
#[test]
fn directory_of_hooks_whose_name_is_no_text_is_refused() {
    if !there("git") {
        return;
    }
    for (name, refused) in [("h\\351", true), ("h\\303\\251", false)] {
        for file in ["repo/.git/config", ".gitconfig"] {
            let root = open_directory();
            let at = root.path();
            done(at, at, &format!("{REPOSITORY} && printf '[core]\\nhooksPath = {name}\\n' >>../{file}"));
            let repo = at.join("repo");
            let mut command = cofferdam();
            command.env("HOME", at);
            let script = format!(
                "d=$(printf '{name}'); echo ran; mkdir $d; printf '#!/bin/sh\\ntouch PWN\\n' >$d/post-commit; chmod +x $d/post-commit"
            );
            let ran = inside_of(command, &repo, repo.to_str().unwrap(), &script);
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(ran.stdout != b"ran\n", refused, "{name} in {file}: {said}");
            assert_eq!(said.contains("another encoding than UTF-8") && said.contains("hint: "), refused, "{said}");
            done(&repo, at, "git commit -q --allow-empty -m b; ! test -e PWN");
        }
    }
}

#[test]
fn push_outside_runs_no_hooks_that_a_run_planted_wherever_git_is_called() {
    if there("git") {
        holds(ELSEWHERE);
    }
}

/// A repository and what `EMBED` plants in it, where the payload makes the file that is given.
fn embedded(at: &Path) -> (std::path::PathBuf, String, std::path::PathBuf) {
    done(at, at, REPOSITORY);
    let marker = at.join("PAYLOAD-RAN");
    let planted = EMBED.replace("PAYLOAD", &format!("touch {}; false", marker.display()));
    (at.join("repo"), planted, marker)
}

#[test]
fn disabled_repository_is_reported_and_can_be_restored() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let (repo, planted, _) = embedded(root.path());
    let mut command = cofferdam();
    command.args(["run", "-q", "--json", "-v"]).arg(format!("{0}:{0}:rw", repo.display())).arg("-w").arg(&repo);
    for (name, value) in identity() {
        command.arg("-e").arg(format!("{name}={value}"));
    }
    let output = command.args(["-e", "HOME=/tmp", "--", "/bin/sh", "-c", &planted]).output().unwrap();
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &outcome["success"]), (Some(0), &true.into()), "{outcome:#}");
    assert_eq!(outcome["error"]["step"], "repositories", "{outcome:#}");
    let git = repo.join("x/.git");
    let violation = &outcome["violations"][0];
    assert_eq!((&violation["operation"], violation["object"].as_str()), (&"gitlink".into(), git.to_str()));
    // The hint is the way back.
    let hint = outcome["error"]["hint"].as_str().unwrap();
    let way_back = hint.split_once(": ").unwrap().1;
    assert!(!git.exists(), "{hint}");
    done(root.path(), root.path(), way_back);
    assert!(git.join("config").exists());
    // Even a quiet run says so.
    let output = cofferdam()
        .args(["run", "-q", "-v"])
        .arg(format!("{0}:{0}:rw", repo.display()))
        .args([
            "--",
            "/bin/sh",
            "-c",
            &format!("cd {}; rm -rf z; cp -r x z; git -c safe.directory='*' add z", repo.display()),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("z/.git.disabled") && said.contains("hint: "), "{said}");
}

#[test]
fn name_chosen_by_the_program_forges_no_line_or_command() {
    if !there("git") {
        return;
    }
    for name in ["y; touch PWN #", "y'; touch PWN; '", "n\ncofferdam: error: fake"] {
        let root = open_directory();
        let (repo, planted, _) = embedded(root.path());
        let mut command = cofferdam();
        command.args(["run", "-v"]).arg(format!("{0}:{0}:rw", repo.display())).arg("-w").arg(&repo);
        for (variable, value) in identity() {
            command.arg("-e").arg(format!("{variable}={value}"));
        }
        // One repository in the index, of this name, so that the hint is about it.
        let script = format!("{planted}\ngit rm -q --cached x; mv x \"$NAME\"; git add -- \"$NAME\" 2>/dev/null");
        command.arg("-e").arg(format!("NAME={name}")).args(["-e", "HOME=/tmp", "--", "/bin/sh", "-c", &script]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let git = repo.join(name).join(".git");
        assert!(said.contains(".git.disabled") && !git.exists(), "{name:?}: {said}");
        assert!(!said.lines().any(|line| line.starts_with("cofferdam: error: fake")), "{said}");
        let hint = said.lines().find_map(|line| line.split_once("read its config and hooks, then")).unwrap().1;
        match hint.strip_prefix(": ") {
            Some(way_back) => {
                done(root.path(), root.path(), way_back);
                assert!(git.join("config").exists() && !root.path().join("PWN").exists(), "{hint}");
            }
            None => assert!(name.contains('\n') && !hint.contains("mv "), "{hint}"),
        }
    }
}

#[test]
fn repositories_that_run_nothing_and_submodules_of_before_stay() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, REPOSITORY);
    // One that a person added, with a program that the person configured.
    done(
        at,
        at,
        "cd repo && git init -q own && cd own && git commit -q --allow-empty -m o && git config core.fsmonitor false && cd .. && git add own && git commit -q -m own",
    );
    done(
        at,
        at,
        "cd repo && git init -q s/t && cd s/t && git commit -q --allow-empty -m t && cd .. && git init -q && git add t && git commit -q -m s && cd .. && git add s && git commit -q -m s",
    );
    let repo = at.join("repo");
    let script = "git config --global --add safe.directory '*'; set -e; git clone -q . copy; git -C copy checkout -q -b topic; \
                  git add copy; git commit -q -m copy; git init -q --bare bare.git; git clone -q bare.git with; \
                  git -C with commit -q --allow-empty -m w; git -C with push -q; git add with; git commit -q -m with; cd own; echo b >b; git add b; git commit -q -m b; cd ../s/t; echo c >c; \
                  git add c; git commit -q -m c; git branch other; cd ../..; git add -A; git commit -q -m all";
    let ran = inside(&repo, repo.to_str().unwrap(), script);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !said.contains(".disabled"), "{said}");
    for name in ["copy", "with", "own", "s", "s/t"] {
        assert!(repo.join(name).join(".git/config").exists(), "{name}");
    }
    done(&repo, at, "git status && git fsck");
}

#[test]
fn mercurial_outside_obeys_nothing_that_a_run_planted() {
    if there("hg") {
        holds(HG);
    }
}

#[test]
fn mercurial_outside_obeys_nothing_that_a_run_planted_where_a_path_leads() {
    if there("hg") {
        holds(HG_PATHS);
    }
}

#[test]
fn repository_stays_that_a_path_of_mercurials_leads_to_and_that_a_run_left_as_it_was() {
    if !there("hg") {
        return;
    }
    for attack in HG_PATHS {
        let root = open_directory();
        let at = root.path();
        done(at, at, attack.victim);
        let repo = at.join("repo");
        let mut command = cofferdam();
        command.env("HOME", at);
        let script = "set -e; export PYTHONDONTWRITEBYTECODE=1; [ ! -e up ] || (cd up; echo x >x; hg commit -q -A -m x); hg clone -q . other; [ -e new ] || hg init new; echo ran";
        let ran = inside_of(command, &repo, repo.to_str().unwrap(), script);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.stdout == b"ran\n" && !said.contains(".disabled"), "{}: {ran:?}", attack.name);
        assert!(["up", "../up"].iter().any(|up| repo.join(up).join(".hg/store").is_dir()), "{}", attack.name);
        let outside = shell(&at.join(attack.outside.0), at, attack.outside.1);
        let said = String::from_utf8_lossy(&outside.stderr);
        assert!(!said.contains("not found"), "{}: {said}", attack.name);
    }
}

#[test]
fn jujutsu_and_subversion_keep_what_they_obey() {
    let root = open_directory();
    let at = root.path();
    let files = [
        ".jj/repo/store/git_target",
        ".jj/repo/store/git/config",
        ".jj/repo/config.toml",
        ".jj/working_copy/tree_state",
        ".svn/wc.db",
        "file",
    ];
    for file in files {
        std::fs::create_dir_all(at.join(file).parent().unwrap()).unwrap();
        std::fs::write(at.join(file), "before").unwrap();
    }
    let script = "for f in .jj/repo/store/git_target .jj/repo/store/git/config .jj/repo/config.toml \
                  .jj/working_copy/tree_state .svn/wc.db file; do rm -f $f; echo after >$f; done; \
                  mkdir -p .jj/repo/store/git/hooks; mkdir -p .jj/repo/store/git/remotes; \
                  mkdir -p .jj/repo/store/git/branches; echo x >.jj/repo/store/git/commondir; echo x >.jj/workspace-config.toml";
    inside(at, at.to_str().unwrap(), script);
    let text = |file: &str| std::fs::read_to_string(at.join(file)).unwrap_or_default();
    for file in &files[..3] {
        assert_eq!(text(file), "before", "{file}");
    }
    assert_eq!(text(".svn/wc.db"), "before");
    let made = ["hooks", "remotes", "branches", "commondir"].map(|name| format!(".jj/repo/store/git/{name}"));
    for name in made.iter().map(String::as_str).chain([".jj/workspace-config.toml"]) {
        assert!(!at.join(name).exists(), "{name}");
    }
    assert_eq!((text("file").as_str(), text(".jj/working_copy/tree_state").as_str()), ("after\n", "after\n"));
}

#[test]
fn a_repository_of_subversion_is_served_by_its_own_hooks() {
    if !there("svnadmin") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, "svnadmin create repo");
    let repo = at.join("repo");
    inside(&repo, repo.to_str().unwrap(), "echo x >hooks/pre-commit; echo x >>conf/svnserve.conf; echo x >db/here");
    assert!(!repo.join("hooks/pre-commit").exists() && repo.join("db/here").exists());
}

/// Version control inside: each is one script in a repository that is a volume.
#[test]
fn git_inside_works() {
    if !there("git") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, &format!("{REPOSITORY}; git worktree add -q ../wt; echo b >b; git add b; git commit -q -m b"));
    let repo = at.join("repo");
    let own = "git config --global --add safe.directory '*'";
    for script in [
        "echo c >c && git add c && git commit -q -m c",
        "git checkout -q -b topic HEAD~1 && echo d >d && git add d && git commit -q -m d && git rebase -q main",
        "git checkout -q main && echo s >>a && git stash -q && git stash pop -q",
        "git worktree add -q inner && (cd inner && echo e >e && git add e && git commit -q -m e)",
        "git gc -q && git fsck",
        "git clone -q . copy && (cd copy && git commit -q --allow-empty -m f)",
        "git init -q fresh && (cd fresh && echo g >g && git add g && git commit -q -m g)",
        "git tag v1 && git reset -q --hard HEAD~1 && git merge -q v1",
    ] {
        let ran = inside(&repo, repo.to_str().unwrap(), &format!("{own}; set -e; {script}"));
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let log = shell(&repo, at, "git log --oneline && git status --short");
    assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
    // The repository by itself, as a linked work tree needs it to commit.
    let git = repo.join(".git");
    let ran = inside(
        &git,
        git.to_str().unwrap(),
        &format!(
            "{own}; echo x | git hash-object -w --stdin && git update-ref refs/heads/x HEAD && git symbolic-ref HEAD refs/heads/x"
        ),
    );
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn mercurial_inside_works() {
    if !there("hg") {
        return;
    }
    let root = open_directory();
    let at = root.path();
    done(at, at, "hg init repo && cd repo && echo a >a && hg add a && hg commit -m a");
    let repo = at.join("repo");
    for script in [
        "echo b >b && hg add b && hg commit -m b",
        "hg update -q 0 && echo c >c && hg add c && hg commit -q -m c && hg merge -q && hg commit -m m",
        "hg clone -q . copy && hg init fresh",
        "hg --config extensions.mq= commit -q --amend -m other && hg branch -q side && hg commit -q -m side && \
         hg --config extensions.mq= --config extensions.strip= strip -q tip && hg bookmark mark",
        "hg update -q 0 && echo d >d && hg commit -q -A -m d && hg --config ui.rollback=true rollback -q && hg commit -q -A -m e && hg verify -q",
    ] {
        let ran = inside(&repo, repo.to_str().unwrap(), &format!("set -e; {script}"));
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    // And with a queue of patches, which is read alone.
    let root = open_directory();
    let at = root.path();
    let mq = "hg --config extensions.mq=";
    done(at, at, &format!("{COMMITTED} && echo b >>a && {mq} qnew -m p pp && {mq} qpop -q"));
    let repo = at.join("repo");
    let ran =
        inside(&repo, repo.to_str().unwrap(), &format!("set -e; {mq} qseries; echo b >b; {mq} commit -q -A -m b"));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && ran.stdout == b"pp\n" && !said.contains(".disabled"), "{ran:?}");
    let ran = inside(&repo, repo.to_str().unwrap(), &format!("{mq} qnew other"));
    assert!(!ran.status.success() && !repo.join(".hg/patches/other").exists(), "{ran:?}");
    done(&repo, at, &format!("{mq} qpush && {mq} qfinish -a && hg log -r tip -T '{{desc}}' | grep -qx p"));
    // And with a subrepository.
    let root = open_directory();
    let at = root.path();
    done(at, at, SUBREPOSITORY);
    let repo = at.join("repo");
    let ran = inside(&repo, repo.to_str().unwrap(), "echo b >>sub/a && hg commit -S -m b && hg diff -S");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(shell(&repo, at, "hg -R sub log | grep -q 'summary: *b'").status.success());
}

//! The attacks on what a push obeys: hooks of the repositories to which addresses in a configuration lead.

use super::attacks::{Attack, REPOSITORY};

/// A repository whose pushes go on to its submodules.
pub(crate) const PUSHED: &str = "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                      git clone -q --bare . ../up.git && git remote add origin ../up.git && git push -q -u origin main && \
                      git config push.recurseSubmodules on-demand";
/// `x` as a plain repository with something to push, and `e.git` with a hook.
pub(crate) const TO_PUSH: &str = "git config --global --add safe.directory '*'; git init -q -b main x; \
                       (cd x; git commit -q --allow-empty -m x; git update-ref refs/remotes/origin/main HEAD; \
                       git commit -q --allow-empty -m y); git init -q --bare e.git; \
                       printf '#!/bin/sh\nPAYLOAD\n' >e.git/hooks/pre-receive; chmod +x e.git/hooks/pre-receive";

/// A repository with a remote in it.
const WITH_REMOTE: &str = "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && \
                           git init -q --bare up.git && git remote add origin ./up.git && git push -q -u origin main";

/// A repository with one beside its files to which this has pushes go: `up.git`.
macro_rules! pushed_by {
    ($setting:literal) => {
        concat!(
            "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q --bare up.git && ",
            "git push -q ./up.git main && git config push.default current && ",
            $setting
        )
    };
}
/// A hook of `up.git`.
pub(crate) const HOOKED: &str =
    "printf '#!/bin/sh\nPAYLOAD\n' >up.git/hooks/pre-receive; chmod +x up.git/hooks/pre-receive";
const PUSHES: (&str, &str) = ("repo", "git commit -q --allow-empty -m b; git push");

/// Each place that an address of a remote in the volume may stand in.
pub(crate) const ADDRESSES: &[Attack] = &[
    Attack {
        name: "another address for pushes",
        victim: pushed_by!("git remote add origin https://127.0.0.1:1/x && git remote set-url --push origin up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a second address for pushes",
        victim: pushed_by!(
            "git init -q --bare ../first && git remote add origin https://127.0.0.1:1/x && \
                            git config --add remote.origin.pushurl ../first && git config --add remote.origin.pushurl up.git"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "the remote of a branch for pushes",
        victim: pushed_by!("git config branch.main.pushRemote ./up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "the remote for all pushes",
        victim: pushed_by!("git config remote.pushDefault ./up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote in the configuration of the work tree",
        victim: pushed_by!(
            "git config extensions.worktreeConfig true && git config --worktree remote.origin.url up.git"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote in a file that the configuration includes",
        victim: pushed_by!("git config --file ../inc remote.origin.url up.git && git config include.path ../../inc"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote in a file that the caller's configuration includes on a condition",
        victim: pushed_by!(
            "git config --file ../inc remote.origin.url up.git && \
                            git config --file ../.gitconfig includeIf.onbranch:main.path inc"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote in the caller's configuration",
        victim: pushed_by!("git config --file ../.gitconfig remote.origin.url up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "an address that the caller's configuration rewrites",
        victim: pushed_by!("git config --file ../.gitconfig url.up.insteadOf mine: && git remote add origin mine:.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote that is a file",
        victim: pushed_by!("mkdir -p .git/remotes && echo 'URL: up.git' >.git/remotes/old"),
        volume: "repo",
        attack: HOOKED,
        outside: ("repo", "git commit -q --allow-empty -m b; git push old HEAD"),
    },
    Attack {
        name: "a remote that is a file of the oldest form",
        victim: pushed_by!("mkdir -p .git/branches && echo 'up.git#main' >.git/branches/old"),
        volume: "repo",
        attack: HOOKED,
        outside: ("repo", "git commit -q --allow-empty -m b; git push old HEAD"),
    },
    Attack {
        name: "a remote at an address with a host",
        victim: pushed_by!("git remote add origin \"file://localhost$PWD/up.git\""),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote at an address with an encoded character",
        victim: pushed_by!("git remote add origin \"file://$PWD/%75p.git\""),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote at a path from the home",
        victim: pushed_by!("git remote add origin '~/repo/up.git'"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a remote at a path from the working directory of the process",
        victim: pushed_by!("git remote add origin /proc/self/cwd/up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: PUSHES,
    },
    Attack {
        name: "a link to the working directory of the process in the place of a remote",
        victim: pushed_by!("git remote add origin up.git"),
        volume: "repo",
        attack: "HOOKED; mv up.git e; ln -s /proc/self/cwd/e up.git",
        outside: PUSHES,
    },
    Attack {
        name: "a file that leads to another repository in the place of a remote",
        victim: pushed_by!("git remote add origin up.git"),
        volume: "repo",
        attack: "HOOKED; mv up.git e; echo \"gitdir: $PWD/e\" >up.git",
        outside: PUSHES,
    },
    Attack {
        name: "a remote that cannot be entered for the time of a look",
        victim: pushed_by!("mkdir q && mv up.git q && git remote add origin q/up.git"),
        volume: "repo",
        attack: "mv q/up.git .; HOOKED; mv up.git q; chmod 000 q/up.git q",
        outside: ("repo", "chmod 755 q; chmod 755 q/up.git; git commit -q --allow-empty -m b; git push"),
    },
    Attack {
        name: "a repository with the name of the remote that is not there",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git config --global --add safe.directory '*'; git clone -q --bare . up.git; HOOKED; mv up.git origin",
        outside: ("repo", "git commit -q --allow-empty -m b; git push origin HEAD:refs/heads/new"),
    },
    Attack {
        name: "a repository of the name by which the repository around knows its remote from an included file",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 git clone -q --bare . ../up.git && git config --file ../inc remote.up.url ../up.git && \
                 git config include.path ../../inc && git push -q -u up main && git config push.recurseSubmodules on-demand",
        volume: "repo",
        attack: "TO_PUSH; mv e.git x/up; git -C x config remote.up.fetch '+refs/heads/*:refs/remotes/up/*'; git add x; git commit -q -m x",
        outside: ("repo", "git push up main"),
    },
];

/// A repository with `sub` in its index and `up.git` beside that, after this was done in `sub`.
macro_rules! sub_pushed_by {
    ($setting:literal) => {
        concat!(
            "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q -b main sub && cd sub && ",
            "git commit -q --allow-empty -m s && git init -q --bare ../up.git && git push -q ../up.git main && ",
            "git config push.default current && ",
            $setting,
            " && cd .. && git add sub 2>../said && git commit -q -m sub"
        )
    };
}
const SUB_PUSHES: (&str, &str) =
    ("repo/sub", "git commit -q --allow-empty -m b; git push; git push o HEAD:refs/heads/n");
/// `made` as a repository that can be pushed, with this in its configuration.
macro_rules! made_with {
    ($setting:literal) => {
        concat!(
            "git config --global --add safe.directory '*'; git init -q -b main made; ",
            "(cd made; git commit -q --allow-empty -m m; ",
            $setting,
            "); git add made; git commit -q -m made; HOOKED"
        )
    };
}

/// The same for repositories in the index: each place that the address of one of their remotes may stand in.
pub(crate) const ADDRESSES_OF_EMBEDDED: &[Attack] = &[
    Attack {
        name: "an address of a submodule that the caller's configuration rewrites",
        victim: sub_pushed_by!(
            "git remote add o https://x/up.git && git config --file ../../.gitconfig url.$(dirname $PWD)/.insteadOf https://x/"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "the same for pushes",
        victim: sub_pushed_by!(
            "git remote add o https://x/up.git && git config --file ../../.gitconfig url.$(dirname $PWD)/.pushInsteadOf https://x/"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "an address that the configuration of a submodule rewrites",
        victim: sub_pushed_by!(
            "git remote add o https://x/up.git && git config url.$(dirname $PWD)/.insteadOf https://x/"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "an address of a submodule in the repository around",
        victim: "git init -q -b main s && git -C s commit -q --allow-empty -m s && git init -q -b main repo && cd repo && \
                 git -c protocol.file.allow=always submodule --quiet add ../s sub && git commit -q -m sub && \
                 git -C sub remote add o https://x/up.git && git clone -q --bare sub up.git && \
                 git config --file ../.gitconfig url.$PWD/.insteadOf https://x/",
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "the remote of a branch for pushes, in a submodule",
        victim: sub_pushed_by!("git config branch.main.pushRemote ../up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "the remote for all pushes, in a submodule",
        victim: sub_pushed_by!("git config remote.pushDefault ../up.git"),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote of a submodule that is a file",
        victim: sub_pushed_by!("mkdir -p .git/remotes && echo 'URL: ../up.git' >.git/remotes/o"),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote of a submodule that is a file of the oldest form",
        victim: sub_pushed_by!("mkdir -p .git/branches && echo '../up.git' >.git/branches/o"),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote in a file that the configuration of a submodule includes",
        victim: sub_pushed_by!(
            "git config --file ../../inc remote.o.url ../up.git && git config include.path ../../../inc"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote in the configuration of the work tree of a submodule",
        victim: sub_pushed_by!(
            "git config extensions.worktreeConfig true && git config --worktree remote.o.url ../up.git"
        ),
        volume: "repo",
        attack: HOOKED,
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote of the caller's configuration, from a submodule",
        victim: sub_pushed_by!("mv ../up.git . && git config --file ../../.gitconfig remote.o.url up.git"),
        volume: "repo",
        attack: "cd sub; HOOKED",
        outside: SUB_PUSHES,
    },
    Attack {
        name: "a remote of a submodule whose name is no text",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && n=$(printf 's\\377') && \
                 git init -q -b main $n && git -C $n commit -q --allow-empty -m s && git init -q --bare up.git && \
                 git -C $n push -q ../up.git main && git -C $n config remote.pushDefault ../up.git && \
                 git -C $n config push.default current && git add $n 2>../said && git commit -q -m sub",
        volume: "repo",
        attack: HOOKED,
        outside: ("repo", "cd s?; git commit -q --allow-empty -m b; git push"),
    },
];

/// The same for repositories that the run itself puts in the index.
pub(crate) const ADDRESSES_OF_MADE: &[Attack] = &[
    Attack {
        name: "an address of a new repository that the caller's configuration rewrites",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q --bare up.git && \
                 git config --file ../.gitconfig url.$PWD/.insteadOf https://x/",
        volume: "repo",
        attack: made_with!("git remote add o https://x/up.git"),
        outside: ("repo/made", "git push o HEAD:refs/heads/n"),
    },
    Attack {
        name: "a remote of the caller's configuration, from a new repository",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q --bare up.git && \
                 git config --file ../.gitconfig remote.o.url up.git",
        volume: "repo",
        attack: concat!(made_with!("true"), "; cp -r up.git made"),
        outside: ("repo/made", "git push o HEAD:refs/heads/n"),
    },
];

/// Where a push goes, and a push that goes on to submodules.
pub(crate) const PUSH: &[Attack] = &[
    Attack {
        name: "a remote that is the name which a repository in the index would get",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git init -q -b z z; git -C z commit -q --allow-empty -m z; cp e.git/hooks/pre-receive z/.git/hooks/; \
                 git -C x remote add origin ../z/.git.disabled; git add x; git commit -q -m x; git add z; git -C z config core.bare true; \
                 [ \"$OUT\" = /nowhere ] || mv z/.git z/.git.disabled",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a hook of a remote in the volume",
        victim: WITH_REMOTE,
        volume: "repo",
        attack: "printf '#!/bin/sh\nPAYLOAD\n' >up.git/hooks/pre-receive; chmod +x up.git/hooks/pre-receive",
        outside: ("repo", "git commit -q --allow-empty -m b; git push"),
    },
    Attack {
        name: "a repository before the remote in the volume",
        victim: WITH_REMOTE,
        volume: "repo",
        attack: "git clone -q --bare up.git up.git/.git; printf '#!/bin/sh\nPAYLOAD\n' >up.git/.git/hooks/pre-receive; \
                 chmod +x up.git/.git/hooks/pre-receive",
        outside: ("repo", "git commit -q --allow-empty -m b; git push"),
    },
    Attack {
        name: "a file that leads to a repository before the remote in the volume",
        victim: WITH_REMOTE,
        volume: "repo",
        attack: "git clone -q --bare up.git e; echo \"gitdir: $PWD/e\" >up.git/.git; printf '#!/bin/sh\nPAYLOAD\n' >e/hooks/pre-receive; \
                 chmod +x e/hooks/pre-receive",
        outside: ("repo", "git commit -q --allow-empty -m b; git push"),
    },
    Attack {
        name: "a link in the place of the remote in the volume",
        victim: WITH_REMOTE,
        volume: "repo",
        attack: "mv up.git e; ln -s e up.git; printf '#!/bin/sh\nPAYLOAD\n' >e/hooks/pre-receive; chmod +x e/hooks/pre-receive",
        outside: ("repo", "git commit -q --allow-empty -m b; git push"),
    },
    Attack {
        name: "a remote that is a path, with what is no repository before it",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mkdir e.git/.git; echo 'ref: refs/heads/main' >e.git/.git/HEAD; git -C x remote add origin ../e.git; \
                 git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote that is a path, with a directory of its name before it",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mkdir -p e/hooks; git -C x remote add origin ../e; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote that is a path with a comment behind it",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin ../e.git; sed -i 's,e.git$,e.git # c,' x/.git/config; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote whose addresses an empty one takes back",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mv e.git x/origin; echo /origin >x/.git/info/exclude; git -C x remote add origin https://h/x; \
                 printf '\\turl =\\n' >>x/.git/config; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "hooks of a remote where the caller's configuration has them looked for",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                      git clone -q --bare . ../up.git && git remote add origin ../up.git && git push -q -u origin main && \
                      git config push.recurseSubmodules on-demand && git config --file ../.gitconfig core.hooksPath .my-hooks",
        volume: "repo",
        attack: "TO_PUSH; mv e.git/hooks e.git/.my-hooks; git -C x remote add origin ../e.git; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote of the older form in a plain repository",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mkdir -p x/.git/remotes; printf 'URL: ../e.git\nPush: refs/heads/main\n' >x/.git/remotes/origin; \
                 git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote of the oldest form in a plain repository",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mkdir -p x/.git/branches; echo '../e.git#main' >x/.git/branches/origin; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote that is a path, in a plain configuration",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin ../e.git; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "the same as an address",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin \"file://$PWD/e.git/\"; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "the same with the hook of a repository in a directory",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mkdir e; mv e.git e/.git; git -C e config core.bare true; git -C x remote add origin ../e; git add x; \
                 git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "an address with a host",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin \"file://localhost$PWD/e.git\"; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "an address with an encoded character",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin \"file://$PWD/%65.git\"; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a path from the home",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x remote add origin '~/repo/e.git'; git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a path as the remote of a branch",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; git -C x config branch.main.remote ../e.git; git -C x config branch.main.merge refs/heads/main; \
                 git add x; git commit -q -m x",
        outside: ("repo", "git push ../up.git main"),
    },
    Attack {
        name: "a remote without an address, and a repository of its name",
        victim: PUSHED,
        volume: "repo",
        attack: "TO_PUSH; mv e.git x/origin; git -C x config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'; \
                 git add x; git commit -q -m x",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "the same with the name of another remote of the repository around",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 git clone -q --bare . ../up.git && git remote add up ../up.git && git push -q -u up main && \
                 git config push.recurseSubmodules on-demand",
        volume: "repo",
        attack: "TO_PUSH; mv e.git x/up.git; git -C x config remote.up.fetch '+refs/heads/*:refs/remotes/up/*'; \
                 git add x; git commit -q -m x",
        outside: ("repo", "git push up main"),
    },
];

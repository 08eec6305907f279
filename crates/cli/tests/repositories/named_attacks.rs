//! The attacks on what the configuration of another repository names: one that a remote leads to, a submodule that is not
//! protected while the run goes on, and what Mercurial's `[paths]` lead to.

use super::attacks::Attack;

/// A repository with `up.git` in it, to which it pushes, after this was done there.
macro_rules! pushes_to {
    ($setting:literal) => {
        concat!(
            "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git init -q --bare up.git && ",
            "git push -q ./up.git main && git remote add origin up.git && mkdir tools && cd up.git && ",
            $setting
        )
    };
}
/// A repository with a submodule in a linked work tree, after this was done in that submodule.
macro_rules! linked_submodule {
    ($setting:literal) => {
        concat!(
            "git init -q -b main s && (cd s && mkdir hh && echo 1 >f && echo 1 >hh/x && git add . && git commit -q -m s) && ",
            "git init -q -b main repo && cd repo && git -c protocol.file.allow=always submodule --quiet add ../s sub && ",
            "git commit -q -m a && git worktree add -q wt -b wt && cd wt && ",
            "git -c protocol.file.allow=always submodule --quiet update --init && cd sub && ",
            $setting
        )
    };
}
/// A repository with a submodule behind 64 others, after this was done in it.
macro_rules! last_submodule {
    ($setting:literal) => {
        concat!(
            "git init -q -b main repo && cd repo && git init -q -b main z && ",
            "(cd z && echo 1 >f && git add f && git commit -q -m s) && h=$(git -C z rev-parse HEAD) && ",
            "for i in $(seq 101 164); do echo \"160000 $h\ts$i\"; done | git update-index --index-info && ",
            "git add z 2>/dev/null && git commit -q -m a && cd z && ",
            $setting
        )
    };
}
const PUSHES: (&str, &str) = ("repo", "git commit -q --allow-empty -m b; git push -q origin HEAD:refs/heads/n");
const STATUS: (&str, &str) = ("repo", "touch -d 2020-01-01 z/f; git status; cd z && git commit -q --allow-empty -m b");
const LINKED_STATUS: (&str, &str) =
    ("repo/wt", "touch -d 2020-01-01 sub/f; git status; cd sub && git commit -q --allow-empty -m b");

/// A hook, or another program, in this file.
macro_rules! program {
    ($file:literal) => {
        concat!("printf '#!/bin/sh\\nPAYLOAD\\n' >", $file, "; chmod +x ", $file)
    };
}
/// A configuration in this file that has git run the hooks in `tools`, and one there.
macro_rules! included {
    ($file:literal) => {
        concat!("printf '[core]\\nhooksPath = \"%s/tools\"\\n' \"$PWD\" >", $file, "; ", program!("tools/pre-receive"))
    };
}

/// Where the repository is in which pushes are received, or git runs for a submodule, and its own configuration names what
/// the run writes.
pub(crate) const NAMED_BY_OTHERS: &[Attack] = &[
    Attack {
        name: "hooks of a remote where its configuration has them looked for",
        victim: pushes_to!("mkdir hk && git config core.hooksPath hk"),
        volume: "repo",
        attack: program!("up.git/hk/pre-receive"),
        outside: PUSHES,
    },
    Attack {
        name: "a hook of a remote beside it",
        victim: pushes_to!(
            "printf '#!/bin/sh\n' >../tools/post-receive && chmod +x ../tools/post-receive && git config core.hooksPath ../tools"
        ),
        volume: "repo",
        attack: program!("tools/post-receive"),
        outside: PUSHES,
    },
    Attack {
        name: "hooks of a remote in a directory that was not there",
        victim: pushes_to!("git config core.hooksPath \"${PWD%/*}/not-there\""),
        volume: "repo",
        attack: "mkdir not-there; printf '#!/bin/sh\nPAYLOAD\n' >not-there/pre-receive; chmod +x not-there/pre-receive",
        outside: PUSHES,
    },
    Attack {
        name: "hooks of a remote by a link",
        victim: pushes_to!("ln -s tools ../cur && git config core.hooksPath ../cur"),
        volume: "repo",
        attack: "mkdir k; printf '#!/bin/sh\nPAYLOAD\n' >k/pre-receive; chmod +x k/pre-receive; ln -sfn k cur",
        outside: PUSHES,
    },
    Attack {
        name: "a script that a hook of a remote is a link to",
        victim: pushes_to!(
            "mkdir hk && ln -s ../../tools/x hk/pre-receive && printf '#!/bin/sh\n' >../tools/x && chmod +x ../tools/x && \
             git config core.hooksPath hk"
        ),
        volume: "repo",
        attack: program!("tools/x"),
        outside: PUSHES,
    },
    Attack {
        name: "hooks of a remote in its own directory",
        victim: pushes_to!("git config core.hooksPath ../up.git"),
        volume: "repo",
        attack: program!("up.git/pre-receive"),
        outside: PUSHES,
    },
    Attack {
        name: "what husky's hooks of a remote run",
        victim: pushes_to!(
            "mkdir -p h/_ && git config core.hooksPath h/_ && printf '#!/bin/sh\n. h/pre-receive\n' >h/_/pre-receive && \
             chmod +x h/_/pre-receive && : >h/pre-receive"
        ),
        volume: "repo",
        attack: "echo 'PAYLOAD' >up.git/h/pre-receive",
        outside: PUSHES,
    },
    Attack {
        name: "a file that the configuration of a remote includes",
        victim: pushes_to!(": >../tools/inc && git config include.path ../tools/inc"),
        volume: "repo",
        attack: included!("tools/inc"),
        outside: PUSHES,
    },
    Attack {
        name: "a file that the configuration of a remote includes, and that was not there",
        victim: pushes_to!("git config includeIf.gitdir:up.git.path ../tools/inc"),
        volume: "repo",
        attack: included!("tools/inc"),
        outside: PUSHES,
    },
    Attack {
        name: "a file that a file outside includes for a remote",
        victim: pushes_to!(
            "printf '[include]\npath = repo/tools/inc\n' >../../outer && git config include.path ../../outer"
        ),
        volume: "repo",
        attack: included!("tools/inc"),
        outside: PUSHES,
    },
    Attack {
        name: "hooks of a remote with a work tree",
        victim: pushes_to!(
            "cd .. && git clone -q up.git up && git remote set-url origin up && mkdir up/.git/hh && git -C up config core.hooksPath hh"
        ),
        volume: "repo",
        attack: program!("up/.git/hh/pre-receive"),
        outside: PUSHES,
    },
    Attack {
        name: "hooks in the volume of a remote outside",
        victim: pushes_to!(
            "cd .. && mv up.git .. && git remote set-url origin ../up.git && git -C ../up.git config core.hooksPath \"$PWD/tools\""
        ),
        volume: "repo",
        attack: program!("tools/pre-receive"),
        outside: PUSHES,
    },
    Attack {
        name: "hooks of the remote of a submodule",
        victim: "git init -q -b main repo && cd repo && git init -q -b main sub && (cd sub && git commit -q --allow-empty -m s) && \
                 git add sub 2>/dev/null && git commit -q -m a && git clone -q --bare sub subup && mkdir subup/hh && \
                 git -C subup config core.hooksPath hh && git -C sub remote add origin ../subup",
        volume: "repo",
        attack: program!("subup/hh/pre-receive"),
        outside: ("repo/sub", "git commit -q --allow-empty -m b; git push -q origin HEAD:refs/heads/n"),
    },
    Attack {
        name: "hooks of a submodule behind many where its configuration has them looked for",
        victim: last_submodule!("git config core.hooksPath hh"),
        volume: "repo",
        attack: "mkdir z/hh; printf '#!/bin/sh\nPAYLOAD\n' >z/hh/pre-commit; chmod +x z/hh/pre-commit",
        outside: STATUS,
    },
    Attack {
        name: "a program of a submodule behind many",
        victim: last_submodule!(
            "printf '#!/bin/sh\nexit 1\n' >tool2 && chmod +x tool2 && ln -s tool2 tool && git config core.fsmonitor ./tool"
        ),
        volume: "repo",
        attack: program!("z/tool2"),
        outside: STATUS,
    },
    Attack {
        name: "hooks of a submodule of a linked work tree",
        victim: linked_submodule!("git config core.hooksPath hh"),
        volume: "repo",
        attack: program!("wt/sub/hh/pre-commit"),
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a file that the configuration of a submodule of a linked work tree includes",
        victim: linked_submodule!("git config include.path ../../../../../inc"),
        volume: "repo",
        attack: "printf '[core]\nfsmonitor = \"PAYLOAD\"\n' >.git/worktrees/wt/inc; cp .git/worktrees/wt/inc .git; \
                 cp .git/inc inc; cp inc wt/inc",
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a program of a submodule of a linked work tree",
        victim: linked_submodule!("git config core.fsmonitor ./hh/x"),
        volume: "repo",
        attack: program!("wt/sub/hh/x"),
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a program with arguments of a submodule of a linked work tree",
        victim: linked_submodule!("git config core.fsmonitor './hh/x -a'"),
        volume: "repo",
        attack: program!("wt/sub/hh/x"),
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a script that a shell runs for a submodule of a linked work tree",
        victim: linked_submodule!("git config core.fsmonitor 'sh tool'"),
        volume: "repo",
        attack: program!("wt/sub/tool"),
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a program of a submodule of a linked work tree, by what the shell makes of it",
        victim: linked_submodule!("git config core.fsmonitor '\"$(git rev-parse --show-toplevel)/hh/x\"'"),
        volume: "repo",
        attack: program!("wt/sub/hh/x"),
        outside: LINKED_STATUS,
    },
    Attack {
        name: "a filter of a submodule of a linked work tree",
        victim: linked_submodule!(
            "git config filter.x.clean hh/x && echo '* filter=x' >\"$(git rev-parse --git-path info/attributes)\""
        ),
        volume: "repo",
        attack: program!("wt/sub/hh/x"),
        outside: LINKED_STATUS,
    },
];

/// Repositories that an address leads to from another directory than the top of a work tree.
pub(crate) const ELSEWHERE: &[Attack] = &[
    Attack {
        name: "a remote of a bare repository, relative to it",
        victim: "git init -q -b main r && git -C r commit -q --allow-empty -m a && git clone -q --bare r repo && \
                 git -C repo config remote.origin.url up",
        volume: "repo",
        attack: "git config --global --add safe.directory '*'; git clone -q --bare . up; printf '#!/bin/sh\nPAYLOAD\n' >up/hooks/pre-receive; \
                 chmod +x up/hooks/pre-receive",
        outside: ("repo", "git push -q origin HEAD:refs/heads/n"),
    },
    Attack {
        name: "a repository with the name of the remote that a bare repository does not have",
        victim: "git init -q -b main r && git -C r commit -q --allow-empty -m a && git clone -q --bare r repo && \
                 git -C repo remote rm origin",
        volume: "repo",
        attack: "git config --global --add safe.directory '*'; git clone -q --bare . origin; \
                 printf '#!/bin/sh\nPAYLOAD\n' >origin/hooks/pre-receive; chmod +x origin/hooks/pre-receive",
        outside: ("repo", "git push -q origin HEAD:refs/heads/n"),
    },
    Attack {
        name: "a remote relative to the repository's own directory",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git remote add origin up",
        volume: "repo",
        attack: "git config --global --add safe.directory '*'; git clone -q --bare . .git/up; \
                 printf '#!/bin/sh\nPAYLOAD\n' >.git/up/hooks/pre-receive; chmod +x .git/up/hooks/pre-receive",
        outside: ("repo/.git", "git push -q origin HEAD:refs/heads/n"),
    },
    Attack {
        name: "a repository in the repository's own directory with the name of the remote that is not there",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a",
        volume: "repo",
        attack: "git config --global --add safe.directory '*'; git clone -q --bare . .git/origin.git; \
                 printf '#!/bin/sh\nPAYLOAD\n' >.git/origin.git/hooks/pre-receive; chmod +x .git/origin.git/hooks/pre-receive",
        outside: ("repo/.git", "git push -q origin HEAD:refs/heads/n"),
    },
];

/// A repository of Mercurial's with one in it, after this was done there.
macro_rules! with_path {
    ($setting:literal) => {
        concat!("hg init repo && cd repo && hg init up && echo 1 >a && hg add -q a && hg commit -q -m a && ", $setting)
    };
}
/// An extension of the repository in `up`.
macro_rules! extended {
    ($at:literal) => {
        concat!(
            "printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >e.py; printf '[extensions]\\ne = %s/e.py\\n' \"$PWD\" >>",
            $at,
            "/.hg/hgrc"
        )
    };
}

/// Repositories that Mercurial opens because `[paths]` lead to them.
pub(crate) const HG_PATHS: &[Attack] = &[
    Attack {
        name: "an extension of the repository that the extension schemes makes an address of",
        victim: with_path!(
            "printf '[extensions]\nschemes=\n[schemes]\nq = {1}\n[paths]\ndefault = q://up\n' >.hg/hgrc"
        ),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "an extension of the repository that is pulled from",
        victim: with_path!("printf '[paths]\ndefault = up\n' >.hg/hgrc"),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "a hook of the repository that is pushed to",
        victim: with_path!(
            "printf '[paths]\ndefault = https://127.0.0.1:1/x\ndefault-push = ./up#default\n' >.hg/hgrc"
        ),
        volume: "repo",
        attack: "printf '[hooks]\nincoming = PAYLOAD\n' >up/.hg/hgrc",
        outside: ("repo", "hg push"),
    },
    Attack {
        name: "an extension of the repository that only pushes go to",
        victim: with_path!(
            "printf '[paths]\ndefault = https://127.0.0.1:1/x\ndefault:pushurl = file://%s/up\n' \"$PWD\" >.hg/hgrc"
        ),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg outgoing"),
    },
    Attack {
        name: "an extension of a repository with another name for its path, by an address",
        victim: with_path!("printf '[paths]\nx = file://%s/%%75p\n' \"$PWD\" >.hg/hgrc"),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg incoming x"),
    },
    Attack {
        name: "an extension of a repository at a path of the caller's",
        victim: with_path!("printf '[paths]\nx = $HOME/repo/up\n' >../.hgrc"),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg incoming x"),
    },
    Attack {
        name: "an extension of a repository at a path in an included file",
        victim: with_path!("printf '[paths]\ndefault = up\n' >../inc && echo '%include ../../inc' >.hg/hgrc"),
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo", "hg summary --remote"),
    },
    Attack {
        name: "an extension of a repository at a path where there was none",
        victim: with_path!("printf '[paths]\ndefault = new\n' >.hg/hgrc"),
        volume: "repo",
        attack: concat!("hg init new; ", extended!("new")),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "an extension of a repository at a path that cannot be entered for the time of a look",
        victim: with_path!("mkdir q && mv up q && ln -s q/up up && printf '[paths]\ndefault = q/up\n' >.hg/hgrc"),
        volume: "repo",
        attack: concat!(extended!("q/up"), "; chmod 000 q/up/.hg q/up q"),
        outside: ("repo", "chmod 755 q; chmod 755 q/up; chmod 755 q/up/.hg*; hg pull"),
    },
    Attack {
        name: "a link to the working directory of the process in the place of a repository at a path",
        victim: with_path!("printf '[paths]\ndefault = up\n' >.hg/hgrc"),
        volume: "repo",
        attack: concat!("mv up e; ", extended!("e"), "; ln -s /proc/self/cwd/e up"),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "a file that the configuration of the repository at a path includes",
        victim: with_path!("printf '[paths]\ndefault = up\n' >.hg/hgrc && echo '%include ../team.rc' >up/.hg/hgrc"),
        volume: "repo",
        attack: "printf '[hooks]\nincoming = PAYLOAD\n' >up/team.rc",
        outside: ("repo", "hg push"),
    },
    Attack {
        name: "a script that a hook of the repository at a path runs",
        victim: with_path!(
            "printf '[paths]\ndefault = up\n' >.hg/hgrc && printf '[hooks]\nincoming = sh tools/x\n' >up/.hg/hgrc && \
             mkdir up/tools && : >up/tools/x"
        ),
        volume: "repo",
        attack: "echo 'PAYLOAD' >up/tools/x",
        outside: ("repo", "hg push"),
    },
    Attack {
        name: "an extension that the repository at a path has in the work tree",
        victim: with_path!(
            "printf '[paths]\ndefault = up\n' >.hg/hgrc && printf '[extensions]\nx = %s/x.py\n' \"$PWD\" >up/.hg/hgrc && : >x.py"
        ),
        volume: "repo",
        attack: "printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >x.py",
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "an extension in the volume of a repository outside",
        victim: with_path!(
            "mv up .. && printf '[paths]\ndefault = ../up\n' >.hg/hgrc && printf '[extensions]\nx = %s/x.py\n' \"$PWD\" >../up/.hg/hgrc && : >x.py"
        ),
        volume: "repo",
        attack: "printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >x.py",
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "another repository in the place of the one at a path",
        victim: with_path!("printf '[paths]\ndefault = up\n' >.hg/hgrc"),
        volume: "repo",
        attack: concat!("mv up e; ", extended!("e"), "; ln -s e up"),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "another repository that the one at a path shares",
        victim: with_path!("printf '[paths]\ndefault = up\n' >.hg/hgrc"),
        volume: "repo",
        attack: concat!(
            "hg --config format.use-share-safe=yes init e; hg --config extensions.share= share -q -U e s; rm -rf up; mv s up; ",
            extended!("e")
        ),
        outside: ("repo", "hg pull"),
    },
    Attack {
        name: "an extension of the repository that a subrepository pushes to",
        victim: "hg init repo && hg init repo/sub && hg init repo/up && cd repo && echo 'sub = sub' >.hgsub && hg add .hgsub && \
                 (cd sub && echo a >a && hg add a && hg commit -m s && printf '[paths]\ndefault = ../up\n' >.hg/hgrc) && hg commit -m a",
        volume: "repo",
        attack: extended!("up"),
        outside: ("repo/sub", "hg push"),
    },
    Attack {
        name: "an extension of a subrepository of the repository that is pushed to",
        victim: "hg init repo && hg init repo/sub && hg init repo/up && cd repo && echo 'sub = sub' >.hgsub && hg add .hgsub && \
                 (cd sub && echo a >a && hg add a && hg commit -m s) && hg commit -m a && hg clone -q sub up/sub && \
                 rm -f up/sub/.hg/hgrc && printf '[paths]\ndefault = up\n' >.hg/hgrc",
        volume: "repo",
        attack: extended!("up/sub"),
        outside: ("repo", "hg push"),
    },
];

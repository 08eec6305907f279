//! The attacks on git: what a run plants in repositories, and which command outside would execute it.

/// One attack on version control outside.
pub(crate) struct Attack {
    pub name: &'static str,
    /// Makes the victim in an empty directory `repo`.
    pub victim: &'static str,
    /// Below the directory of all, what is given to the sandbox.
    pub volume: &'static str,
    /// What the sandboxed program does in it. `PAYLOAD` is the command that must never run.
    pub attack: &'static str,
    /// What the person then does, in this directory below that of all.
    pub outside: (&'static str, &'static str),
}

pub(crate) const REPOSITORY: &str =
    "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a";
pub(crate) const WORKTREE: &str =
    "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q ../wt";
pub(crate) const BARE: &str = "mkdir -p objects refs && echo 'ref: refs/heads/main' >HEAD && printf '[core]\\nrepositoryformatversion=0\\n\
                    bare=false\\nworktree=\".\"\\nfsmonitor=\"PAYLOAD\"\\n' >config";

pub(crate) const GIT: &[Attack] = &[
    Attack {
        name: "hooks that the caller's configuration has every clone begin with",
        victim: "git init -q -b main repo && mkdir -p repo/tmpl/hooks && cd repo && echo a >a && git add a && git commit -q -m a && \
                 printf '[init]\n\ttemplateDir = ~/repo/tmpl\n' >../.gitconfig",
        volume: "repo",
        attack: "printf '#!/bin/sh\nPAYLOAD\n' >tmpl/hooks/post-checkout; chmod +x tmpl/hooks/post-checkout",
        outside: ("", "git clone -q repo clone"),
    },
    Attack {
        name: "the same where the directory is not there yet",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 printf '[init]\n\ttemplateDir = ~/repo/tmpl\n' >../.gitconfig",
        volume: "repo",
        attack: "mkdir -p tmpl/hooks; printf '#!/bin/sh\nPAYLOAD\n' >tmpl/hooks/post-checkout; chmod +x tmpl/hooks/post-checkout",
        outside: ("", "git clone -q repo clone"),
    },
    Attack {
        name: "a program of an alias of the caller's",
        victim: "git init -q -b main repo && cd repo && mkdir tools && touch tools/x && chmod +x tools/x && \
                 printf '[alias]\n\tx = !~/repo/tools/x -a\n' >../.gitconfig",
        volume: "repo",
        attack: "printf '#!/bin/sh\nPAYLOAD\n' >tools/x",
        outside: ("repo", "git x"),
    },
    Attack {
        name: "a program that the caller's configuration has for differences",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir tools && \
                 printf '#!/bin/sh\n' >tools/x && chmod +x tools/x && printf '[diff]\n\texternal = %s/tools/x\n' \"$PWD\" >../.gitconfig",
        volume: "repo",
        attack: "printf '#!/bin/sh\nPAYLOAD\n' >tools/x; echo b >a",
        outside: ("repo", "git diff"),
    },
    Attack {
        name: "hooks that a push to the repository has looked for in its own directory",
        victim: "git init -q -b main repo && cd repo && mkdir -p .husky/_ && git config core.hooksPath .husky/_ && \
                 git commit -q --allow-empty -m a && git clone -q . ../clone && git -C ../clone commit -q --allow-empty -m b",
        volume: "repo",
        attack: "mkdir -p .git/.husky/_; printf '#!/bin/sh\\nPAYLOAD\\n' >.git/.husky/_/pre-receive; chmod +x .git/.husky/_/pre-receive",
        outside: ("clone", "git push origin HEAD:refs/heads/new"),
    },
    Attack {
        name: "hooks of a bare repository where its configuration has them looked for",
        victim: "git init -q -b main --bare repo && git -C repo config core.hooksPath .my-hooks && git clone -q repo clone && \
                 git -C clone commit -q --allow-empty -m b",
        volume: "repo",
        attack: "mkdir .my-hooks; printf '#!/bin/sh\\nPAYLOAD\\n' >.my-hooks/pre-receive; chmod +x .my-hooks/pre-receive",
        outside: ("clone", "git push origin HEAD:refs/heads/new"),
    },
    Attack {
        name: "hooks in a directory with a tab in its name",
        victim: "git init -q -b main repo && cd repo && printf '[core]\\nhooksPath = h\\\\th\\n' >>.git/config && git commit -q --allow-empty -m a",
        volume: "repo",
        attack: "d=$(printf 'h\\th'); mkdir \"$d\"; printf '#!/bin/sh\\nPAYLOAD\\n' >\"$d/post-commit\"; chmod +x \"$d/post-commit\"",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "hooks in a directory with a blank at the end of its name",
        victim: "git init -q -b main repo && cd repo && git config core.hooksPath 'hh ' && git commit -q --allow-empty -m a",
        volume: "repo",
        attack: "mkdir 'hh '; printf '#!/bin/sh\\nPAYLOAD\\n' >'hh /post-commit'; chmod +x 'hh /post-commit'",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a script that a shell runs",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && git config core.fsmonitor 'sh tool'",
        volume: "repo",
        attack: "echo 'PAYLOAD' >tool",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a link between a hook and the script that it leads to",
        victim: "git init -q -b main repo && cd repo && mkdir tools && printf '#!/bin/sh\\n' >tools/x && chmod +x tools/x && \
                 ln -s tools/x cur && ln -s ../../cur .git/hooks/post-commit && git add . && git commit -q -m a",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >k; chmod +x k; ln -sf k cur",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a link between a hook and the directory of its script",
        victim: "git init -q -b main repo && cd repo && mkdir tools && printf '#!/bin/sh\\n' >tools/x && chmod +x tools/x && \
                 ln -s tools cur && ln -s ../../cur/x .git/hooks/post-commit && git add . && git commit -q -m a",
        volume: "repo",
        attack: "mkdir k; printf '#!/bin/sh\\nPAYLOAD\\n' >k/x; chmod +x k/x; ln -sfn k cur",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "the script of a hook that is a link to what is not there",
        victim: "git init -q -b main repo && cd repo && ln -s ../../tools/x .git/hooks/post-commit && git commit -q --allow-empty -m a",
        volume: "repo",
        attack: "mkdir tools; printf '#!/bin/sh\\nPAYLOAD\\n' >tools/x; chmod +x tools/x",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "hooks that a configuration names by a link outside",
        victim: "git init -q -b main repo && ln -s repo link && cd repo && git config core.hooksPath \"${PWD%/repo}/link/tools\" && \
                 git commit -q --allow-empty -m a",
        volume: "repo",
        attack: "mkdir tools; printf '#!/bin/sh\\nPAYLOAD\\n' >tools/post-commit; chmod +x tools/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "what husky's hooks of a linked work tree run",
        victim: "git init -q -b main repo && cd repo && mkdir -p .husky/_ && git config core.hooksPath .husky/_ && \
                 printf '#!/bin/sh\\n. .husky/post-commit\\n' >.husky/_/post-commit && chmod +x .husky/_/post-commit && \
                 touch .husky/post-commit && git add . && git commit -q -m a && git worktree add -q wt",
        volume: "repo",
        attack: "echo 'PAYLOAD' >wt/.husky/post-commit",
        outside: ("repo/wt", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a further link to a hook of a linked work tree that the run adds",
        victim: "git init -q -b main repo && cd repo && mkdir hk && printf '#!/bin/sh\\n' >hk/post-index-change && chmod +x hk/* && \
                 echo hk >.git/info/exclude && git config core.hooksPath hk && echo a >a && git add a && git commit -q -m a",
        volume: "repo",
        attack: "git worktree add -q wt; cp -r hk wt/hk; ln wt/hk/post-index-change k; printf '#!/bin/sh\\nPAYLOAD\\n' >k; \
                 touch -d 2020-01-01 wt/a",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the repository of a linked work tree that the run adds, through a working directory",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cp -r .git wt/g; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>wt/g/config; ln -s .git g; \
                 ln -s /proc/self/cwd c; printf 'g\\n' >wt/.gitignore; echo ../../../c/g >.git/worktrees/wt/commondir",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the file .git of a linked work tree that the run adds, through a working directory",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; mkdir wt/g; cp -r .git/. wt/g; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>wt/g/config; \
                 echo ../.. >wt/g/worktrees/wt/commondir; ln -s .git g; echo 'gitdir: /proc/self/cwd/g/worktrees/wt' >wt/.git",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "hooks of a linked work tree that the run adds",
        victim: "git init -q -b main repo && cd repo && mkdir -p .husky/_ && printf '#!/bin/sh\\n' >.husky/_/pre-commit && \
                 printf '*\\n' >.husky/_/.gitignore && git config core.hooksPath .husky/_ && echo a >a && git add a && git commit -q -m a",
        volume: "repo",
        attack: "git worktree add -q wt; mkdir -p wt/.husky/_; printf '*\\n' >wt/.husky/_/.gitignore; \
                 printf '#!/bin/sh\\nPAYLOAD\\n' >wt/.husky/_/post-index-change; chmod +x wt/.husky/_/post-index-change; touch -d 2020-01-01 wt/a",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the same by the caller's configuration",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 printf '[core]\\nhooksPath = .my-hooks\\n' >../.gitconfig",
        volume: "repo",
        attack: "git worktree add -q wt; mkdir -p wt/.my-hooks; printf '*\\n' >wt/.my-hooks/.gitignore; \
                 printf '#!/bin/sh\\nPAYLOAD\\n' >wt/.my-hooks/post-index-change; chmod +x wt/.my-hooks/post-index-change; touch -d 2020-01-01 wt/a",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "hooks of a repository in the index, by the caller's configuration",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && \
                 printf '[core]\\nhooksPath = .my-hooks\\n' >../.gitconfig",
        volume: "repo",
        attack: "git init -q sub; cd sub; echo 1 >f; git add f; git commit -q -m s; mkdir .my-hooks; printf '*\\n' >.my-hooks/.gitignore; \
                 printf '#!/bin/sh\\nPAYLOAD\\n' >.my-hooks/post-index-change; chmod +x .my-hooks/post-index-change; \
                 touch -d 2020-01-01 f; cd ..; git add sub 2>&-",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a program of a repository in the index, by the caller's configuration",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && \
                 printf '[core]\nfsmonitor = tools/watch\n' >../.gitconfig",
        volume: "repo",
        attack: "git init -q sub; cd sub; mkdir tools; printf '#!/bin/sh\nPAYLOAD\n' >tools/watch; chmod +x tools/watch; \
                 git -c core.fsmonitor=false commit -q --allow-empty -m s; cd ..; git -c core.fsmonitor=false add sub 2>&-",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the same of the repository itself",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && \
                 printf '[core]\nfsmonitor = sh tools/watch\n' >../.gitconfig",
        volume: "repo",
        attack: "mkdir tools; printf '#!/bin/sh\nPAYLOAD\n' >tools/watch; chmod +x tools/watch",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the same of a linked work tree that the run adds",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 printf '[core]\nfsmonitor = tools/watch\n' >../.gitconfig",
        volume: "repo",
        attack: "git -c core.fsmonitor=false worktree add -q wt; mkdir -p wt/tools; printf '#!/bin/sh\nPAYLOAD\n' >wt/tools/watch; \
                 chmod +x wt/tools/watch",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "what a copied configuration of a linked work tree that the run adds includes",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 git config extensions.worktreeConfig true && git config --worktree include.path local.inc && touch .git/local.inc",
        volume: "repo",
        attack: "git worktree add -q wt; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >.git/worktrees/wt/local.inc",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the repository of a linked work tree that the run adds",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cp -r .git ev; rm -rf ev/worktrees; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>ev/config; \
                 echo \"$PWD/ev\" >.git/worktrees/wt/commondir",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "a repository in the place of a linked work tree that the run adds",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cd .git/worktrees/wt; rm commondir; cp -r ../../objects ../../refs ../../config .; \
                 printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>config",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the same, used in it",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cd .git/worktrees/wt; echo . >commondir; cp -r ../../objects ../../refs ../../config .; \
                 printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>config",
        outside: ("repo/wt", "git status"),
    },
    Attack {
        name: "a repository whose name ends in a blank, of a linked work tree that the run adds",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cp -r .git '.git '; rm -rf '.git /worktrees'; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>'.git /config'; \
                 printf '%s ' \"$PWD/.git\" >.git/worktrees/wt/commondir",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "the configuration of a linked work tree that the run adds",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 git config extensions.worktreeConfig true",
        volume: "repo",
        attack: "git worktree add -q wt; printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >.git/worktrees/wt/config.worktree",
        outside: ("repo", "git worktree remove wt"),
    },
    Attack {
        name: "a repository in the index of a linked work tree that the run adds",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git worktree add -q wt; cd wt; git init -q sub; (cd sub; git commit -q --allow-empty -m s); git add sub 2>&-; \
                 printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >>sub/.git/config",
        outside: ("repo/wt", "git status"),
    },
    Attack {
        name: "a hook where a file that the caller's configuration includes has hooks in the work tree",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir -p tools/hooks && \
                 printf '[core]\\nhooksPath = tools/hooks\\n' >../work.inc && printf '[include]\\npath = work.inc\\n' >../.gitconfig",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >tools/hooks/post-commit; chmod +x tools/hooks/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a hook where the configuration of the work tree has hooks in it",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir -p tools/hooks && \
                 git config extensions.worktreeConfig true && git config --worktree core.hooksPath tools/hooks",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >tools/hooks/post-commit; chmod +x tools/hooks/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a new hook where the directory of hooks is a link, in the volume that it leads to",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir -p tools/h && \
                 rm -rf .git/hooks && ln -s ../tools/h .git/hooks",
        volume: "repo/tools",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >h/post-commit; chmod +x h/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a script of the work tree that a hook is a link to",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir -p tools .git/hooks && \
                 printf '#!/bin/sh\\n' >tools/check && chmod +x tools/check && ln -s ../../tools/check .git/hooks/post-commit",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >tools/check; chmod +x tools/check",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a hook of the repository that a file leads to",
        victim: "mkdir repo && cd repo && git init -q -b main --bare .bare && echo 'gitdir: ./.bare' >.git && \
                 git -C .bare config core.bare false && echo a >a && git add a && git commit -q -m a",
        volume: "repo",
        attack: "mkdir -p .bare/hooks; printf '#!/bin/sh\\nPAYLOAD\\n' >.bare/hooks/post-commit; chmod +x .bare/hooks/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "the configuration of the repository that a file leads to",
        victim: "mkdir repo && cd repo && git init -q -b main --separate-git-dir=.repo . && echo a >a && git add a && \
                 git commit -q -m a",
        volume: "repo",
        attack: "printf '[core]\\n\\tfsmonitor = \"PAYLOAD\"\\n' >>.repo/config",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the configuration of the repository that a link leads to",
        victim: "mkdir repo && cd repo && git init -q -b main . && mv .git .repo && ln -s .repo .git && echo a >a && git add a && \
                 git commit -q -m a",
        volume: "repo",
        attack: "printf '[core]\\n\\tfsmonitor = \"PAYLOAD\"\\n' >>.repo/config",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a hook where the configuration has hooks in the work tree",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir -p tools/hooks && \
                 git config core.hooksPath tools/hooks",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >tools/hooks/post-commit; chmod +x tools/hooks/post-commit",
        outside: ("repo", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a file of the work tree that the configuration includes, in a volume that is a part of it",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && mkdir part && \
                 touch part/team && git config include.path ../part/team",
        volume: "repo/part",
        attack: "printf '[core]\\nfsmonitor = \"PAYLOAD\"\\n' >team",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a bare repository at the top, and HEAD moved away",
        victim: REPOSITORY,
        volume: "repo",
        attack: "mv .git/HEAD .git/H; BARE",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a bare repository at the top, and a HEAD that is no reference",
        victim: REPOSITORY,
        volume: "repo",
        attack: "echo nothing >.git/HEAD; BARE",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a bare repository at the top, and the objects moved away",
        victim: REPOSITORY,
        volume: "repo",
        attack: "mv .git/objects .git/o; BARE",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a bare repository in a directory of a repository",
        victim: "git init -q -b main repo && mkdir repo/sub && echo a >repo/sub/a",
        volume: "repo/sub",
        attack: "BARE",
        outside: ("repo/sub", "git status"),
    },
    Attack {
        name: "a linked repository at the top: HEAD and commondir",
        victim: "mkdir repo && echo a >repo/a",
        volume: "repo",
        attack: "mkdir x; (cd x; BARE); cp x/HEAD HEAD; echo x >commondir",
        outside: ("repo", "git --work-tree=. status"),
    },
    Attack {
        name: "a HEAD renamed into its place",
        victim: "mkdir repo && echo a >repo/a",
        volume: "repo",
        attack: "BARE; rm -f HEAD; echo 'ref: refs/heads/main' >H; mv H HEAD || ln H HEAD || ln -s refs/heads/main HEAD",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a remote of the older form",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git init -q --bare sub/x.git; printf '#!/bin/sh\\nPAYLOAD\\n' >sub/x.git/hooks/pre-receive; \
                 chmod +x sub/x.git/hooks/pre-receive; mkdir -p .git/remotes; printf 'URL: ./sub/x.git\\nPush: refs/heads/main\\n' >.git/remotes/origin",
        outside: ("repo", "git push"),
    },
    Attack {
        name: "a remote of the oldest form",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git init -q --bare sub/x.git; printf '#!/bin/sh\\nPAYLOAD\\n' >sub/x.git/hooks/pre-receive; \
                 chmod +x sub/x.git/hooks/pre-receive; mkdir -p .git/branches; echo './sub/x.git#main' >.git/branches/origin",
        outside: ("repo", "git push origin main"),
    },
    Attack {
        name: "the commondir of a linked work tree",
        victim: WORKTREE,
        volume: "repo",
        attack: "mkdir .git/x; (cd .git/x; BARE; sed -i '/worktree/d' config); echo ../../x >.git/worktrees/wt/commondir",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "a linked work tree without its commondir",
        victim: WORKTREE,
        volume: "repo",
        attack: "cd .git/worktrees/wt; rm -f commondir || mv commondir c; mv HEAD H0; BARE; mv H0 HEAD; sed -i '/worktree/d' config",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "another directory in the place of a linked work tree's",
        victim: WORKTREE,
        volume: "repo",
        attack: "cd .git/worktrees; mv wt wt0; mkdir wt; (cd wt; BARE; sed -i '/worktree/d' config)",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "the configuration of a linked work tree",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q ../wt && \
                 git config extensions.worktreeConfig true",
        volume: "repo",
        attack: "printf '[core]\\nfsmonitor=\"PAYLOAD\"\\n' >.git/worktrees/wt/config.worktree",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "the repository mounted by itself: its configuration",
        victim: REPOSITORY,
        volume: "repo/.git",
        attack: "printf '[core]\\nrepositoryformatversion=0\\nfsmonitor=\"PAYLOAD\"\\n' >config",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the repository mounted by itself: a hook",
        victim: REPOSITORY,
        volume: "repo/.git",
        attack: "mkdir -p hooks; printf '#!/bin/sh\\nPAYLOAD\\n' >hooks/post-checkout; chmod +x hooks/post-checkout",
        outside: ("repo", "git checkout -q -b other"),
    },
    Attack {
        name: "the repository mounted by itself: another in its place",
        victim: REPOSITORY,
        volume: "repo/.git",
        attack: "mkdir x; (cd x; BARE; sed -i '/worktree/d' config); echo x >commondir",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the directory of a linked work tree mounted by itself",
        victim: WORKTREE,
        volume: "repo/.git/worktrees/wt",
        attack: "mkdir x; (cd x; BARE; sed -i '/worktree/d' config); echo x >commondir",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "a bare repository that is the volume",
        victim: "git init -q --bare repo",
        volume: "repo",
        attack: "printf '[core]\\nrepositoryformatversion=0\\nbare=true\\n[alias]\\nhello=\"!PAYLOAD\"\\n' >config",
        outside: ("repo", "git hello"),
    },
    Attack {
        name: "the file .git of a linked work tree",
        victim: WORKTREE,
        volume: "wt",
        attack: "mkdir x; (cd x; BARE; sed -i '/worktree/d' config); rm -f .git || mv .git g; echo gitdir: x >.git",
        outside: ("wt", "git status"),
    },
    Attack {
        name: "the file .git of a linked work tree in the volume",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q trees/wt",
        volume: "repo",
        attack: "mkdir x; (cd x; BARE; sed -i '/worktree/d' config); cd trees; rm -f wt/.git || mv wt w; mkdir -p wt; \
                 echo gitdir: ../../x >wt/.git",
        outside: ("repo/trees/wt", "git status"),
    },
    Attack {
        name: "the repository of a submodule, which is a directory",
        victim: "git init -q -b main repo && cd repo && git init -q sub && (cd sub && git commit -q --allow-empty -m s) && \
                 git add sub && git commit -q -m a",
        volume: "repo",
        attack: "printf '[core]\\nrepositoryformatversion=0\\nfsmonitor=\"PAYLOAD\"\\n' >sub/.git/config",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the repository of a submodule, which is a file",
        victim: "git init -q s && (cd s && git commit -q --allow-empty -m s) && git init -q -b main repo && cd repo && \
                 git -c protocol.file.allow=always submodule -q add ../s sub && git commit -q -m a",
        volume: "repo",
        attack: "mkdir x; (cd x; BARE; sed -i '/worktree/d' config); rm -f sub/.git || mv sub s; mkdir -p sub; echo gitdir: ../x >sub/.git",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a hook of a submodule whose configuration has hooks in its work tree",
        victim: "git init -q -b main repo && cd repo && git init -q sub && (cd sub && git commit -q --allow-empty -m s && \
                 mkdir -p tools/hooks && git config core.hooksPath tools/hooks) && git add sub && git commit -q -m a",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >sub/tools/hooks/post-commit; chmod +x sub/tools/hooks/post-commit",
        outside: ("repo/sub", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a file that the configuration of a submodule includes, whose repository is in that of the work tree around",
        victim: "git init -q s && (cd s && git commit -q --allow-empty -m s) && git init -q -b main repo && cd repo && \
                 git -c protocol.file.allow=always submodule -q add ../s sub && git commit -q -m a && touch sub/team && \
                 git -C sub config include.path ../../../sub/team",
        volume: "repo",
        attack: "printf '[core]\\nfsmonitor = \"PAYLOAD\"\\n' >sub/team",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a hook in a linked work tree where the configuration has hooks in each",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q zz && \
                 mkdir -p zz/tools/hooks && git config core.hooksPath tools/hooks",
        volume: "repo",
        attack: "printf '#!/bin/sh\\nPAYLOAD\\n' >zz/tools/hooks/post-commit; chmod +x zz/tools/hooks/post-commit",
        outside: ("repo/zz", "git commit -q --allow-empty -m b"),
    },
    Attack {
        name: "a file that the configuration of a linked work tree includes",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q zz && \
                 git config extensions.worktreeConfig true && touch zz/team && \
                 git -C zz config --worktree include.path \"$PWD/zz/team\"",
        volume: "repo",
        attack: "printf '[core]\\nfsmonitor = \"PAYLOAD\"\\n' >zz/team",
        outside: ("repo/zz", "git status"),
    },
    Attack {
        name: "a file that the configuration includes on a line that goes on",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && touch team && \
                 printf '[include]\\npath = ../te\\\\\\nam\\n' >>.git/config",
        volume: "repo",
        attack: "printf '[core]\\nfsmonitor = \"PAYLOAD\"\\n' >team",
        outside: ("repo", "git status"),
    },
];

/// `x` as a repository that runs the payload, and its entry in the index of the repository around it.
pub(crate) const EMBED: &str = "git config --global --add safe.directory '*'; git init -q x; \
                     (cd x; git commit -q --allow-empty -m x; git config core.fsmonitor 'PAYLOAD'); git add x";

/// What the index leads to: no name is known before the run, so these are found when it is over.
pub(crate) const INDEX: &[Attack] = &[
    Attack {
        name: "a repository that names the .git of another by the name that it would get",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git init -q z1; git -C z1 commit -q --allow-empty -m x; h=$(git -C z1 rev-parse HEAD); mkdir a1; \
                 echo 'gitdir: ../z1/.git.disabled' >a1/.git; \
                 git update-index --add --cacheinfo \"160000,$h,a1\" --add --cacheinfo \"160000,$h,z1\"; \
                 printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"PAYLOAD\"\\n' >z1/.git/config; \
                 [ \"$OUT\" = /nowhere ] || mv z1/.git z1/.git.disabled",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a repository that the program adds to the index",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the same in a directory that cannot be written, in a split index",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; git update-index --split-index; chmod 0555 x",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "the same in a directory that cannot be entered for the time of a look",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; chmod 000 x",
        outside: ("repo", "chmod 755 x; git status"),
    },
    Attack {
        name: "the same below such a directory",
        victim: REPOSITORY,
        volume: "repo",
        attack: "mkdir -p d/e; cd d/e; EMBED; cd ../..; git add d; chmod 000 d/e/x d/e d",
        outside: ("repo", "chmod 755 d; chmod 755 d/e; chmod 755 d/e/x; git status"),
    },
    Attack {
        name: "the same in a work tree that cannot be entered",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q trees/wt",
        volume: "repo",
        attack: "cd trees/wt; EMBED; cd ../..; chmod 000 trees/wt trees",
        outside: ("repo", "chmod 755 trees; chmod 755 trees/wt; cd trees/wt; git status"),
    },
    Attack {
        name: "the same with the names taken that it could get",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mkdir x/.git.disabled",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a file that says where the repository is",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mv x y; mkdir x; echo gitdir: ../y/.git >x/.git",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a link to the repository",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mv x/.git y; ln -s ../y x/.git",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a file that leads elsewhere for another process",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mv x y; mkdir x; mv y/.git x/g; cp -r x/g g; echo gitdir: /proc/self/cwd/g >x/.git",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a configuration that is another file for another process",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mv x/.git/config x/c; ln -s /proc/self/cwd/c x/.git/config",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "an index that is another file for another process",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; mv .git/index i; ln -s /proc/self/cwd/i .git/index",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a repository in a plain repository",
        victim: REPOSITORY,
        volume: "repo",
        attack: "git init -q z; cd z; EMBED; git commit -q -m z; cd ..; git add z",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a hook of a plain repository",
        victim: REPOSITORY,
        volume: "repo",
        attack: "EMBED; cd x; git config --unset core.fsmonitor; echo a >a; git add a; git commit -q -m a; touch -d 2001-01-01 a; \
                 mkdir -p .git/hooks; printf '#!/bin/sh\nPAYLOAD\n' >.git/hooks/post-index-change; \
                 chmod +x .git/hooks/post-index-change",
        outside: ("repo", "git status"),
    },
    Attack {
        name: "a linked work tree in the volume",
        victim: "git init -q -b main repo && cd repo && git commit -q --allow-empty -m a && git worktree add -q trees/wt",
        volume: "repo",
        attack: "cd trees/wt; EMBED",
        outside: ("repo/trees/wt", "git status"),
    },
    Attack {
        name: "a submodule that is not there, in a directory of the repository",
        victim: "git init -q -b main repo && cd repo && mkdir libs && cd libs && git init -q x && \
                 (cd x && git commit -q --allow-empty -m s) && echo a >a && git add a x && git commit -q -m a && rm -rf x",
        volume: "repo/libs",
        attack: "EMBED || true",
        outside: ("repo", "git status"),
    },
];

/// `b/x` as a repository that runs the payload; `gitlink PATH` has an entry of the index lead to it.
pub(crate) const BEHIND: &str = "git config --global --add safe.directory '*'; git init -q b/x; \
                      (cd b/x; git commit -q --allow-empty -m x; git config core.fsmonitor 'PAYLOAD'); \
                      gitlink() { h=$(git -c core.fsmonitor=false -C b/x rev-parse HEAD); \
                      { git show :.gitmodules 2>&-; printf '[submodule \"%s\"]\\n\\tpath = %s\\n\\turl = ./x\\n' \"$1\" \"$1\"; } >gm; \
                      m=$(git hash-object -w gm); rm gm; \
                      git update-index --add --cacheinfo \"160000,$h,$1\" --add --cacheinfo \"100644,$m,.gitmodules\"; }";
pub(crate) const ACTIVE: &str = "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                      git config submodule.active .";

/// The same behind a symbolic link, which `git status` does not follow, and other commands do.
pub(crate) const LINKED: &[Attack] = &[
    Attack {
        name: "a link, and an entry that leads through the name that it would get",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b l; gitlink l/x; gitlink l.disabled/x",
        outside: ("repo", "git grep --recurse-submodules x; git ls-files --recurse-submodules"),
    },
    Attack {
        name: "the same with that name taken by another link, and so on",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; n=l; for i in 1 2 3; do ln -s b $n; gitlink $n/x; n=$n.disabled; done; gitlink $n/x",
        outside: ("repo", "git grep --recurse-submodules x; git ls-files --recurse-submodules"),
    },
    Attack {
        name: "the same with links in the place of the repository",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b/x l; gitlink l; gitlink l.disabled",
        outside: ("repo", "git grep --recurse-submodules x; git ls-files --recurse-submodules"),
    },
    Attack {
        name: "a link in a remote, and an entry that leads through the name that the remote would get",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 git config submodule.active . && git init -q --bare q/b && git remote add origin q/b",
        volume: "repo",
        attack: "BEHIND; printf '#!/bin/sh\nPAYLOAD\n' >q/b/hooks/pre-receive; chmod +x q/b/hooks/pre-receive; \
                 ln -s ../../b q/b/l; gitlink q/b.disabled/l/x; [ \"$OUT\" = /nowhere ] || mv q/b q/b.disabled",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a repository behind a link",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b l; gitlink l/x",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "the same, not known from .gitmodules alone",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b l; gitlink l/x; git -c core.fsmonitor=false commit -qm x",
        outside: ("repo", "git ls-files --recurse-submodules"),
    },
    Attack {
        name: "a link in the place of the repository",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b/x l; gitlink l",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link in the place of a submodule that is not there",
        victim: "git init -q -b main repo && cd repo && git init -q lib/s && git -C lib/s commit -q --allow-empty -m s && \
                 git add lib/s && printf '[submodule \"s\"]\n\tpath = lib/s\n\turl = ./x\n' >.gitmodules && git add .gitmodules && \
                 git commit -q -m a && rm -rf lib/s && mkdir lib/s && git config submodule.active .",
        volume: "repo",
        attack: "BEHIND; rmdir lib/s; ln -s ../b/x lib/s",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link in the place of its directory",
        victim: "git init -q -b main repo && cd repo && git init -q lib/x && git -C lib/x commit -q --allow-empty -m s && \
                 git add lib/x && printf '[submodule \"s\"]\n\tpath = lib/x\n\turl = ./x\n' >.gitmodules && git add .gitmodules && \
                 git commit -q -m a && rm -rf lib && git config submodule.active .",
        volume: "repo",
        attack: "BEHIND; ln -s b lib",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link to a link",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s b l; ln -s l m; gitlink m/x",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link to the work tree itself",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s . l; gitlink l/b/x",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link that is another one for another process",
        victim: ACTIVE,
        volume: "repo",
        attack: "BEHIND; ln -s /proc/self/cwd/b l; gitlink l/x",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link that was there before",
        victim: "git init -q -b main repo && cd repo && ln -s b l && mkdir b && echo a >a && git add a && git commit -q -m a && \
                 git config submodule.active .",
        volume: "repo",
        attack: "BEHIND; gitlink l/x",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link that was there before, in a directory that is no volume",
        victim: "git init -q -b main repo && cd repo && git init -q b/x && git -C b/x commit -q --allow-empty -m x && \
                 git -C b/x config core.fsmonitor 'touch $OUT/PAYLOAD-RAN; false' && ln -s b l && echo a >a && git add a && \
                 git commit -q -m a && git config submodule.active .",
        volume: "repo/.git",
        attack: "export GIT_DIR=$PWD GIT_WORK_TREE=${PWD%/*}; git config --global --add safe.directory '*'; printf '[submodule \"s\"]\n\tpath = l/x\n\turl = ./x\n' >m; : PAYLOAD; \
                 m=$(git hash-object -w $PWD/m); \
                 git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,l/x --add --cacheinfo 100644,$m,.gitmodules",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
    Attack {
        name: "a link to another project of the caller's",
        victim: "git init -q -b main other && git -C other commit -q --allow-empty -m x && \
                 git -C other config core.fsmonitor 'touch $OUT/PAYLOAD-RAN; false' && git init -q -b main repo && cd repo && \
                 echo a >a && git add a && git commit -q -m a && git config submodule.active .",
        volume: "repo",
        attack: "BEHIND; git -C b/x config --unset core.fsmonitor; ln -s ../other l; gitlink l; : PAYLOAD",
        outside: ("repo", "git grep --recurse-submodules x"),
    },
];

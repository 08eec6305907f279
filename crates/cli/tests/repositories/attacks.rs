//! The attacks: what a run plants in repositories, and which command outside would execute it.

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

pub(crate) const COMMITTED: &str = "hg init repo && cd repo && echo a >a && hg commit -q -A -m a";

pub(crate) const SUBREPOSITORY: &str = "hg init repo && hg init repo/sub && cd repo && echo 'sub = sub' >.hgsub && hg add .hgsub && \
                             (cd sub && echo a >a && hg add a && hg commit -m s) && hg commit -m a";

/// A commit in the store that names `new` as a subrepository, and that repository, whose extension is the payload.
pub(crate) const NAMED: &str = "export HOME=/tmp; W=$(mktemp -d); hg clone -q . $W/c; hg init new; hg init $W/c/new; \
                     (cd $W/c/new; echo s >s; hg commit -q -A -m s); (cd $W/c; echo 'new = new' >.hgsub; hg add .hgsub; hg commit -q -m n); \
                     (cd new; hg pull -q $W/c/new; hg update -q); hg pull -q $W/c; \
                     printf '[extensions]\nx=%s/x.py\n' \"$PWD\" >new/.hg/hgrc; echo 'import os; os.system(\"PAYLOAD\")' >x.py";

/// git writes these through a link, wherever that leads. `$p` is what must not come to be.
pub(crate) const LINKS: &[Attack] = &[
    Attack {
        name: "a linked work tree that is said to be elsewhere",
        victim: "mkdir out && git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a",
        volume: "repo",
        attack: "git worktree add -q wt; echo \"${PWD%/*}/out/.git\" >.git/worktrees/wt/gitdir; : PAYLOAD",
        outside: ("repo", "git worktree repair; test -e ../out/.git && touch ../PAYLOAD-RAN"),
    },
    Attack {
        name: "a link in the place of the last message",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; rm -f .git/COMMIT_EDITMSG; ln -s \"$p\" .git/COMMIT_EDITMSG",
        outside: ("repo", "echo b >>a; git commit -qam b"),
    },
    Attack {
        name: "a link in the place of the reflog",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; rm -f .git/logs/HEAD; ln -s \"$p\" .git/logs/HEAD",
        outside: ("repo", "echo b >>a; git commit -qam b"),
    },
    Attack {
        name: "a link in the place of the reflog of a branch whose name leaves no room for another",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; n=$(printf %0250d 0); git symbolic-ref HEAD refs/heads/$n; \
                 mkdir -p .git/logs/refs/heads; ln -s \"$p\" .git/logs/refs/heads/$n",
        outside: ("repo", "echo b >>a; git commit -qam b"),
    },
    Attack {
        name: "a link in the place of the index",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; rm -f .git/index; ln -s \"$p\" .git/index",
        outside: ("repo", "git add a"),
    },
    Attack {
        name: "a link to be fetched into",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; ln -s \"$p\" .git/FETCH_HEAD",
        outside: ("repo", "git fetch -q . HEAD"),
    },
    Attack {
        name: "a link in the place of the last message, to the configuration",
        victim: REPOSITORY,
        volume: "repo",
        attack: "rm -f .git/COMMIT_EDITMSG; ln -s config .git/COMMIT_EDITMSG; \
                 printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"PAYLOAD\"\\n' >.git/MERGE_MSG",
        outside: ("repo", "echo b >>a; GIT_EDITOR=true git commit -qa; git status"),
    },
    Attack {
        name: "a link in the place of the last message, to a hook",
        victim: "git init -q -b main repo && cd repo && echo a >a && git add a && git commit -q -m a && \
                 printf '#!/bin/sh\\n' >.git/hooks/post-commit && chmod +x .git/hooks/post-commit",
        volume: "repo",
        attack: "rm -f .git/COMMIT_EDITMSG; ln -s hooks/post-commit .git/COMMIT_EDITMSG; \
                 printf 'PAYLOAD\\n' >.git/MERGE_MSG",
        outside: ("repo", "echo b >>a; GIT_EDITOR=true git commit -qa"),
    },
    Attack {
        name: "an entry of the index that lies outside of the work tree",
        victim: REPOSITORY,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; p=${p##*/}; blob=$(echo x | git hash-object -w --stdin); \
                 git update-index --add --cacheinfo \"100644,$blob,xx/$p\"; sed -i \"s,xx/$p,../$p,\" .git/index",
        outside: ("repo", "git restore ."),
    },
    Attack {
        name: "an entry of the index that is a hook",
        victim: REPOSITORY,
        volume: "repo",
        attack: "blob=$(printf '#!/bin/sh\\nPAYLOAD\\n' | git hash-object -w --stdin); \
                 git update-index --add --cacheinfo \"100755,$blob,xgit/hooks/post-checkout\"; \
                 sed -i 's,xgit/hooks,.git/hooks,' .git/index",
        outside: ("repo", "git restore .; git checkout -q -b other"),
    },
    Attack {
        name: "a branch that is a reference to a file outside",
        victim: REPOSITORY,
        volume: "repo",
        attack: "echo 'ref: ../../out/new' >.git/refs/heads/main; : PAYLOAD",
        outside: ("repo", "mkdir ../out; git commit -q --allow-empty -m b; test -e ../out/new && touch ../PAYLOAD-RAN"),
    },
    Attack {
        name: "a branch with the name that a reference to a file outside would get",
        victim: REPOSITORY,
        volume: "repo",
        attack: "for ev in ev ev.disabled; do echo 'ref: ../../out/new' >.git/refs/heads/$ev; done; \
                 echo 'ref: refs/heads/ev.disabled' >.git/HEAD; : PAYLOAD",
        outside: ("repo", "mkdir ../out; git commit -q --allow-empty -m b; test -e ../out/new && touch ../PAYLOAD-RAN"),
    },
    Attack {
        name: "a link to a directory outside in the place of a work tree",
        victim: REPOSITORY,
        volume: "repo",
        attack: "mkdir -p .git/worktrees; ln -s ../../../out .git/worktrees/ev; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; git worktree prune; git gc -q; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "a place for the last commit that is a reference to a file outside",
        victim: REPOSITORY,
        volume: "repo",
        attack: "echo 'ref: ../../out/new' >.git/ORIG_HEAD; : PAYLOAD",
        outside: ("repo", "mkdir ../out; git reset -q --hard HEAD; test -e ../out/new && touch ../PAYLOAD-RAN"),
    },
    Attack {
        name: "a resolution to record of a file outside",
        victim: REPOSITORY,
        volume: "repo",
        attack: "id=1111111111111111111111111111111111111111; mkdir -p .git/rr-cache/$id; \
                 echo x >.git/rr-cache/$id/preimage; printf \"$id\\t../out/key\\0\" >.git/MERGE_RR; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo SECRET >../out/key; echo b >>a; git commit -qam b; \
             grep -qr SECRET .git/rr-cache && touch ../PAYLOAD-RAN",
        ),
    },
];

pub(crate) const HG: &[Attack] = &[
    Attack {
        name: "the configuration of a subrepository, in a volume that is a part of the repository",
        victim: "hg init repo && mkdir repo/src && hg init repo/src/sub && cd repo && echo 'src/sub = src/sub' >.hgsub && \
                 hg add .hgsub && (cd src/sub && echo a >a && hg add a && hg commit -m s) && hg commit -m a",
        volume: "repo/src",
        attack: "printf '[extensions]\\nx = %s/x.py\\n' \"$PWD\" >>sub/.hg/hgrc; \
                 printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >x.py",
        outside: ("repo", "hg status -S"),
    },
    Attack {
        name: "an extension that the configuration has in the work tree",
        victim: "hg init repo && cd repo && mkdir tools && touch tools/ext.py && hg commit -q -A -m a && \
                 printf '[extensions]\\next = %s/tools/ext.py\\n' \"$PWD\" >.hg/hgrc",
        volume: "repo",
        attack: "printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >tools/ext.py",
        outside: ("repo", "hg status"),
    },
    Attack {
        name: "a file that the configuration of a subrepository includes",
        victim: "hg init repo && hg init repo/sub && cd repo && echo 'sub = sub' >.hgsub && hg add .hgsub && \
                 (cd sub && echo a >a && hg add a && hg commit -m s && touch team.rc && echo '%include ../team.rc' >.hg/hgrc) && \
                 hg commit -m a",
        volume: "repo",
        attack: "printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >sub/team.rc; echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg diff"),
    },
    Attack {
        name: "an extension that the configuration has in the work tree, by a variable",
        victim: "hg init repo && cd repo && mkdir tools && touch tools/ext.py && hg commit -q -A -m a && \
                 printf '[extensions]\\next = $HOME/repo/tools/ext.py\\n' >.hg/hgrc",
        volume: "repo",
        attack: "printf 'import os\\nos.system(\"\"\"PAYLOAD\"\"\")\\n' >tools/ext.py",
        outside: ("repo", "hg status"),
    },
    Attack {
        name: "a dirstate with a file outside",
        victim: COMMITTED,
        volume: "repo",
        attack: "printf 'n\\0\\0\\201\\244\\377\\377\\377\\377\\377\\377\\377\\377\\0\\0\\0\\012../out/key' >>.hg/dirstate",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg revert --all; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "a transaction to recover that restores configuration",
        victim: COMMITTED,
        volume: "repo",
        attack: "printf '[hooks]\\npre-status = PAYLOAD\\n' >.hg/evil; : >.hg/store/journal; \
                 printf '2\\nplain\\0hgrc\\0evil\\0000\\n' >.hg/store/journal.backupfiles",
        outside: ("repo", "hg recover; hg status"),
    },
    Attack {
        name: "a transaction to recover that restores a file elsewhere",
        victim: COMMITTED,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; echo x >.hg/evil; : >.hg/store/journal; \
                 printf '2\\nplain\\0%s\\0evil\\0000\\n' \"$p\" >.hg/store/journal.backupfiles",
        outside: ("repo", "hg recover"),
    },
    Attack {
        name: "a transaction to roll back that restores configuration",
        victim: COMMITTED,
        volume: "repo",
        attack: "printf '[hooks]\\npre-status = PAYLOAD\\n' >.hg/evil; \
                 printf '2\\nplain\\0hgrc\\0evil\\0000\\n' >.hg/store/undo.backupfiles",
        outside: ("repo", "hg --config ui.rollback=true rollback; hg status"),
    },
    Attack {
        name: "a link in the place of a log",
        victim: COMMITTED,
        volume: "repo",
        attack: "p='PAYLOAD'; p=${p#touch }; p=${p%%;*}; ln -s \"$p\" .hg/blackbox.log",
        outside: ("repo", "hg --config extensions.blackbox= --config blackbox.track=* status"),
    },
    Attack {
        name: "a state of histedit that is a pickle",
        victim: COMMITTED,
        volume: "repo",
        attack: "printf \"cposix\\nsystem\\n(S'PAYLOAD'\\ntR.\" >.hg/histedit-state",
        outside: ("repo", "hg --config extensions.histedit= summary"),
    },
    Attack {
        name: "a repository of patches",
        victim: COMMITTED,
        volume: "repo",
        attack: "mkdir -p .hg/patches/.hg/store; \
                 printf 'revlogv1\\nstore\\nfncache\\ndotencode\\ngeneraldelta\\n' >.hg/patches/.hg/requires; \
                 printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >.hg/patches/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "export HOME=$PWD/..; printf '[extensions]\nmq=\n' >$HOME/.hgrc; hg qnew pp"),
    },
    Attack {
        name: "the configuration of one work tree",
        victim: "hg init repo",
        volume: "repo",
        // A version of Mercurial that reads it only where the repository says that its configuration is shared.
        attack: "echo share-safe >>.hg/requires; printf '[hooks]\\npre-status = PAYLOAD\\n' >.hg/hgrc-not-shared",
        outside: ("repo", "hg status"),
    },
    Attack {
        name: "another repository to share",
        victim: "hg init repo",
        volume: "repo",
        attack: "mkdir -p x/.hg; cp -r .hg/store .hg/requires x/.hg/; printf '[hooks]\\npre-status = PAYLOAD\\n' >x/.hg/hgrc; \
                 (cat .hg/requires; echo shared) >r; cp r .hg/requires; printf %s \"$PWD/x/.hg\" >.hg/sharedpath",
        outside: ("repo", "hg status"),
    },
    Attack {
        name: "the configuration of a subrepository",
        victim: SUBREPOSITORY,
        volume: "repo",
        attack: "printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >sub/.hg/hgrc; echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg diff"),
    },
    Attack {
        name: "another repository in the place of a subrepository",
        victim: SUBREPOSITORY,
        volume: "repo",
        attack: "cp -r sub s; printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >s/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py; rm -rf sub; mv s sub",
        outside: ("repo", "hg diff"),
    },
    Attack {
        name: "a commit that names a subrepository",
        victim: "hg init repo && cd repo && echo a >a && hg add a && hg commit -m a",
        volume: "repo",
        attack: "NAMED",
        outside: ("repo", "hg update"),
    },
    Attack {
        name: "the same in a subrepository",
        victim: SUBREPOSITORY,
        volume: "repo",
        attack: "cd sub; NAMED",
        outside: ("repo/sub", "hg update"),
    },
    Attack {
        name: "the same with another encoding of the store",
        victim: "hg --config format.dotencode=no --config format.use-share-safe=yes init repo && cd repo && echo a >a && hg add a && hg commit -m a",
        volume: "repo",
        attack: "NAMED",
        outside: ("repo", "hg update"),
    },
    Attack {
        name: "the repository mounted by itself",
        victim: "hg init repo",
        volume: "repo/.hg",
        attack: "printf '[hooks]\\npre-status = PAYLOAD\\n' >hgrc",
        outside: ("repo", "hg status"),
    },
];

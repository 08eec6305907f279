#!/bin/bash
# Does in the directory $1 what the other arguments name; the first check that fails ends it. Prints `done` at the end.
cd "$1" || exit 9
shift
set -eu

# `!` before a command does not end the script when it works after all; this does.
refused() {
    if (eval "$1") 2> /dev/null; then
        echo "worked, but must not: $1" >&2
        exit 1
    fi
}

plumbing() {
    grep -q 'a b' <<X
a b
X
    grep -q x <<< x
    diff <(echo a) <(echo a)
    echo to > >(cat > /dev/null)
    test "$(seq 100 | sort -r | head -n 1)" = 99
    coproc COPY { cat; }
    echo q >&"${COPY[1]}"
    read -r line <&"${COPY[0]}"
    test "$line" = q
    kill "$COPY_PID"
    wait "$COPY_PID" || true
}
devices() {
    echo x > /dev/null
    echo x >> /dev/null
    echo x >| /dev/null 2>&1
    echo to stderr > /dev/stderr
    echo x > /dev/stdout
    echo x >> /dev/stdout
    echo x > /proc/self/fd/1
    echo z | grep -q z /dev/stdin
    exec 5> five
    echo q > /dev/fd/5
    exec 5>&-
    grep -q q five
    echo t | tee /dev/stderr > /dev/null
    refused 'echo x > /dev/full'
    test "$(head -c 5 /dev/zero | wc -c)" = 5
}
fifos() {
    mkfifo fifo
    echo via > fifo &
    read -r line < fifo
    wait
    test "$line" = via
    exec 7<> fifo
    echo both >&7
    read -r -u 7 line
    exec 7>&-
    test "$line" = both
    # One end waits, the other comes later; somebody else works meanwhile.
    cat fifo > got &
    for i in 1 2 3; do echo "$i" > "name$i"; done
    echo late > fifo
    wait
    grep -q late got
    rm fifo
    for i in $(seq 30); do
        mkfifo "fifo$i"
        echo "$i" > "fifo$i" &
    done
    sleep 0.1
    for i in $(seq 30); do test "$(cat "fifo$i")" = "$i"; done
    wait
    rm fifo*
}
jobs_() {
    set -m
    sleep 5 &
    kill -STOP %sleep
    until jobs | grep -q Stopped; do sleep 0.01; done
    kill -CONT %sleep
    kill %sleep
    wait %sleep || test $? = 143
    set +m
    bash -c 'trap "exit 3" TERM; kill -TERM $$; sleep 1' || test $? = 3
    timeout 0.1 sleep 5 || test $? = 124
    test "$(printf 'a\nb\n' | xargs -n 1 -P 2 echo | wc -l)" = 2
    setsid true
    nohup true
    ulimit -n > /dev/null
}
files() {
    local temporary
    temporary=$(mktemp -p .)
    rm "$temporary"
    temporary=$(mktemp -d -p .)
    rmdir "$temporary"
    echo a > a
    cp a b
    cmp a b
    mv b c
    mkdir -p d/e
    echo 1 > d/e/f
    cp -r d g
    mv g h
    test -f h/e/f
    ln -s a soft
    ln a hard
    test a -ef hard
    echo through > soft
    ln -s target dangling
    echo x > dangling
    test -f target
    ln -s /nonexistent/x lost
    refused 'echo x > lost'
    refused 'echo x > d'
    (cd d; echo 1 > ../above; test -f ../above)
    (umask 077; echo 1 > private; mkdir closed)
    test "$(stat -c %a private closed | tr '\n' ' ')" = '600 700 '
    umask 027
    echo 1 > grouped
    umask 000
    echo 1 > everybodys
    mkdir open
    umask 022
    echo 1 > public
    test "$(stat -c %a grouped everybodys open public | tr '\n' ' ')" = '640 666 777 644 '
    echo 1 > once
    refused 'set -C; echo 2 > once'
    echo 1 >> lines
    echo 2 >> lines
    test "$(wc -l < lines)" = 2
    : > lines
    test ! -s lines
    dd if=/dev/zero of=dd bs=1k count=4 status=none
    truncate -s 10 dd
    test "$(stat -c %s dd)" = 10
    flock lock true
    find . -name a | grep -q a
    for i in $(seq 50); do echo "$i" > "many.$i"; done
    test "$(ls many.* | wc -l)" = 50
    rm -r d h many.*
    (mkdir gone; cd gone; rmdir ../gone; refused 'echo x > f')
}
metadata() {
    touch -d 2020-01-01 old
    chmod 600 old
    cp -a old copy
    test "$(stat -c '%a %Y' old)" = "$(stat -c '%a %Y' copy)"
    install -m 755 old new
    sed -i s/x/y/ old
}
script() {
    printf '#!/bin/sh\necho from a script\n' > script
    chmod +x script
    ./script | grep -q 'from a script'
}
builtins() {
    local i sum=0
    for i in 1 2 3; do sum=$((sum + i)); done
    test "$sum" = 6
    [[ abc == a* ]]
    printf '%s\n' one > builtin
    read -r line < builtin
    test "$line" = one
    trap 'sum=7' USR1
    kill -USR1 $$
    test "$sum" = 7
}
interrupted() {
    mkfifo waits
    (trap 'exit 5' TERM; echo x > waits) &
    sleep 0.2
    kill %%
    wait %% || test $? = 5
    timeout 0.2 bash -c 'echo x > waits' || test $? = 124
    # A signal with a handler does not keep it from waiting on.
    (trap 'true' USR1; echo waited > waits) &
    sleep 0.2
    kill -USR1 %%
    sleep 0.1
    grep -q waited waits
    wait
}
guards() {
    # Held whether they are there or not, and without harm to their neighbours.
    echo x > other
    for name in .bashrc .git .ssh; do
        refused "mkdir $name"
        refused "echo x > $name"
        refused "ln -s other $name"
        refused "mv other $name"
    done
    echo x > .bashrcs
    mkdir .gi
}
compile() {
    gcc -O1 -o hello "$SCRIPTS/hello.c" -lpthread -lm
    ./hello
}
objects() {
    gcc -O1 -c -o hello.o "$SCRIPTS/hello.c"
    ar rc libhello.a hello.o
    nm libhello.a | grep -q main
}
database() {
    sqlite3 t.db 'pragma journal_mode=wal; create table t(a); insert into t values(1),(2);' | grep -q wal
    test "$(sqlite3 t.db 'insert into t values(3); select sum(a) from t;')" = 6
    test "$(sqlite3 t.db 'pragma wal_checkpoint(truncate); vacuum; pragma integrity_check;' | tail -n 1)" = ok
    sqlite3 t.db .dump | sqlite3 u.db
    test "$(sqlite3 u.db 'select count(*) from t')" = 3
}
archive() {
    mkdir -p tree/sub
    echo 1 > tree/file
    ln -s file tree/soft
    ln tree/file tree/hard
    tar czf tree.tgz tree
    tar tf tree.tgz > /dev/null
    mkdir out
    tar xzf tree.tgz -C out
    test -L out/tree/soft
    test out/tree/file -ef out/tree/hard
}
archive_without_metadata() {
    mkdir tree
    echo 1 > tree/file
    tar czf tree.tgz tree
    mkdir out
    tar xmzf tree.tgz -C out
    cmp tree/file out/tree/file
}
repository() {
    git init -q -b main repository
    cd repository
    echo 1 > f
    git add f
    git commit -qm one
    echo 2 > f
    git commit -qam two
    git checkout -q -b side HEAD~1
    echo 3 > g
    git add g
    git commit -qm three
    git merge -q main -m merged
    git worktree add -q ../worktree main
    git tag v1
    git gc -q
    git fsck 2> /dev/null
    git clone -q . ../clone
    test "$(git -C ../clone rev-list --count HEAD)" = 4
    test -z "$(git status --short)"
    cd ..
}
commit() {
    echo changed > f
    git commit -qam changed
    git checkout -q -b other
    test "$(git rev-list --count HEAD)" = 2
    refused 'git config user.name mallory'
    refused 'echo x > .git/hooks/pre-commit'
    refused 'mv .git elsewhere'
}
history() {
    test "$(git status --short --untracked-files=no)" = ' M f'
    git log --oneline | grep -q one
    git diff --stat | grep -q f
    git grep -q 2
    git blame f > /dev/null
}
java_() {
    javac -d . "$SCRIPTS/Hello.java"
    java -cp . Hello
}
crate() {
    cargo build --offline -q
    ./target/debug/walled
    cargo test --offline -q > /dev/null
}

for name in "$@"; do "$name"; done
echo "done"

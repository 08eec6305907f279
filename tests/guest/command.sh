#!/bin/sh
# The whole command under version 2 with every controller, in a guest whose root is a file system like any other:
# pivot_root(2) refuses the one that the kernel unpacks the guest into. First what memory, forks and CPU do to it, as root
# in the hierarchy's root and as a user in a delegated cgroup; then the suite's bombs, and its attempts to outlive.
set -e
root=/sys/fs/cgroup
if [ ! -e /switched ]; then
    mkdir /new
    mount -t tmpfs -o mode=755 tmpfs /new
    for entry in /*; do
        case $entry in /new | /proc | /sys | /dev | /tmp | /run) ;; *) cp -a "$entry" /new ;; esac
    done
    for entry in proc sys dev tmp run; do mkdir "/new/$entry" && mount --move "/$entry" "/new/$entry"; done
    : > /new/switched
    cd /new
    mount --move . /
    exec chroot . /busybox/sh /command.sh
fi
as_nobody='/usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/'
failed=0
place() { echo "== $1"; }

# Moves a process of its own into a cgroup and runs a command there.
inside() { dir=$1; shift; sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$dir" "$@"; }
give() { chown 65534:65534 "$1" "$1/cgroup.procs" "$1/cgroup.subtree_control"; }

# expect NAME WANTED COMMAND…: WANTED must stand in what the command answers.
expect() {
    name=$1 wanted=$2
    shift 2
    answer=$("$@" 2>&1) || true
    case $answer in
        *$wanted*) echo "ok: $name" ;;
        *) echo "FAILED: $name: no $wanted in: $answer"; failed=1 ;;
    esac
}

# All limits named, and so required in full: a place that cannot hold one of them refuses. An emulated processor may take
# seconds of CPU time to touch 64 MiB, so that only the CPU bomb is given few of them.
cpu_time=60
run() { expect "$1" "$2" $as "$cofferdam" run --json --memory 64m --pids 16 --cpu-time $cpu_time --cpus 0.5 --timeout 180 -- /attack $3; }

limits() {
    run "twin: 8 MiB" 'ESCAPED' "memory 8"
    run "memory bomb: 400 MiB" '"limit": "limits.memory_mb"' "memory 400"
    run "memory bomb: six children with 24 MiB each" '"limit": "limits.memory_mb"' "memory-tree 6 24"
    run "twin: 4 processes" 'ESCAPED' "fork-bomb 4"
    run "fork bomb: 200 processes" 'BLOCKED' "fork-bomb 200"
    # Smaller than the suite's row, whose replies take an emulated processor minutes.
    queued() { expect "$1" "$2" $as "$cofferdam" run --json --memory 16m --timeout 180 -- /attack netlink-queue "$3"; }
    queued "replies of netlink: 32 MiB, which no cgroup counts" '"limit": "limits.memory_mb"' 32
    queued "twin: 2 MiB" 'ESCAPED' 2
    cpu_time=2
    run "CPU bomb: 20 s, signals ignored" '"limit": "limits.cpu_seconds"' "cpu 20000"
    run "twin: 50 ms of CPU" 'ESCAPED' "cpu 50"
    cpu_time=60
    # What no run removes: the directory over all runs of a user.
    if find "$root" -type d -name 'cofferdam-*' ! -name cofferdam-user-0 ! -name cofferdam-user-65534 | grep .; then
        echo "FAILED: cgroups are left"
        failed=1
    fi
}

cofferdam=/bin/cofferdam
place "root, in the root of the hierarchy"
as= limits

place "nobody, in a leaf of a delegated cgroup"
mkdir -p "$root/tree/leaf" && give "$root/tree" && give "$root/tree/leaf"
as="inside $root/tree/leaf $as_nobody" limits
rmdir "$root/tree/cofferdam-user-65534" "$root/tree/leaf" "$root/tree"

place "nobody, alone in a delegated cgroup"
mkdir "$root/alone" && give "$root/alone"
as="inside $root/alone $as_nobody"
run "fork bomb: 200 processes" 'BLOCKED' "fork-bomb 200"
rmdir "$root/alone/cofferdam-user-65534" "$root/alone/cofferdam-supervisor" "$root/alone"

place "nobody, where nothing is delegated: required limits refuse"
as=$as_nobody
run "memory" 'setup_failed' "memory 8"

# A pool, so that there is something for the attacks on huge pages to take.
pool=/proc/sys/vm/nr_hugepages
if [ -e "$pool" ]; then
    echo 16 > "$pool" || true
    echo "huge pages in the pool: $(cat "$pool")"
    for kind in mmap memfd shm; do
        expect "control: huge pages without a sandbox, by $kind" 'ESCAPED' /attack huge-pages "$kind"
    done
else
    echo "huge pages in the pool: none, the kernel knows no such pages"
fi

export COFFERDAM_ESCAPE_DIR=/srv COFFERDAM_BIN=/bin/cofferdam COFFERDAM_ATTACK=/attack COFFERDAM_MUST_WORK=1
mkdir -p /srv
for class in Bombs:: Outliving:: cgroup-v2-only; do
    place "the suite: $class"
    # survive-owners-death is tried where processors are not emulated.
    /escape --color never --skip landlock --skip ::bubblewrap:: --skip ::docker:: --skip ::podman:: --skip ::oci: --skip survive-owners-death --skip netlink-queues "$class" || failed=1
done
exit $failed

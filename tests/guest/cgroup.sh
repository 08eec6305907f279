#!/bin/sh
# The cgroup checks under version 2 with every controller, from each place where a process can sit. The program
# is /cgroup_guest_test; each line of the table is one place and what must be found there. The one directory that stays is
# that over all runs of a user, cofferdam-user-UID, empty: rmdir fails where anything is left in it.
set -e
root=/sys/fs/cgroup
as_nobody='/usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups'
place() { echo "== $1"; }

# Moves a process of its own into a cgroup and runs a command there.
inside() { dir=$1; shift; sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$dir" "$@"; }
give() { chown 65534:65534 "$1" "$1/cgroup.procs" "$1/cgroup.subtree_control"; }

place "root, in the root of the hierarchy: V2"
/cgroup_guest_test all
rmdir "$root/cofferdam-user-0"

place "nobody, in the root of the hierarchy: nothing is available"
$as_nobody /cgroup_guest_test unavailable

place "nobody, alone in a delegated cgroup: V2Leaf, moves itself into a leaf"
mkdir "$root/alone" && give "$root/alone"
inside "$root/alone" $as_nobody /cgroup_guest_test all
rmdir "$root/alone/cofferdam-user-65534" "$root/alone/cofferdam-supervisor" "$root/alone"

place "nobody, in a leaf of a delegated cgroup: V2, beside itself"
mkdir -p "$root/tree/leaf" && give "$root/tree" && give "$root/tree/leaf"
inside "$root/tree/leaf" $as_nobody /cgroup_guest_test all
rmdir "$root/tree/cofferdam-user-65534" "$root/tree/leaf" "$root/tree"

place "nobody, with others in the delegated cgroup: nothing is available"
mkdir "$root/shared" && give "$root/shared"
sleep 1000 & other=$!
echo $other > "$root/shared/cgroup.procs"
inside "$root/shared" $as_nobody /cgroup_guest_test unavailable
kill $other; wait $other || true
rmdir "$root/shared"

place "nothing is left"
! ls -d "$root"/cofferdam-* "$root"/*/cofferdam-* 2>/dev/null

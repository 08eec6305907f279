#!/bin/sh
# Runs inside the user manager: the process must be found to need a scope, get one, and pass every check in it.
runtime=/run/user/1000
exec >$runtime/log 2>&1
code=0
check() {
    echo "== $1"
    case $(/cgroup_guest_test probe) in
        *V2Scope*) /cgroup_guest_test all || code=1 ;;
        *) /cgroup_guest_test probe; echo "a scope was expected"; code=1 ;;
    esac
    # The scope ends with its last process, and systemd removes what is left of it.
    sleep 1
    if find /sys/fs/cgroup -name 'cofferdam-*' | grep .; then echo "left over"; code=1; fi
}
cat /proc/self/cgroup
# One way at a time, so that each is the one that was taken.
mv $runtime/systemd/private $runtime/private
check "through the session bus"
rm $runtime/bus
mv $runtime/private $runtime/systemd/private
check "through the manager's own socket"
echo $code > $runtime/result

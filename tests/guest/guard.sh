#!/bin/sh
# The guard on this kernel: its tests that need nothing but a few programs, as root and as a user. First to a root that is a
# file system like any other: pivot_root(2) refuses the one that the kernel unpacks the guest into.
set -e
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
    exec chroot . /busybox/sh /guard.sh
fi
rm -rf /bin && ln -s usr/bin /bin
ln -s dash /usr/bin/sh
mkdir -p /var/lib /var/tmp /home/nobody /srv
chmod 1777 /tmp /var/tmp
chown 65534:65534 /home/nobody
printf 'root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' > /etc/passwd
export COFFERDAM_MUST_WORK=1 TMPDIR=/tmp
uname -r
failed=0
as='/usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/home/nobody'
# There is no Python here to attack with; its own tests attack with a shell.
echo "== the guard's tests, as nobody"
$as /tests/guard --color never --skip the_tree_of_a_command --skip blocked_paths_hold --skip the_network_is \
    --skip path_answers_match --skip descriptors_namespaces_and_moves --skip nothing_outlives_its_command \
    --skip python_of_the_example || failed=1
echo "== its own tests, of replaced files and older kernels, as nobody"
$as /tests/guard-units --color never kernel_tests:: || failed=1
# A tmpfs maps no owners here, which root's own sandboxes need: what is refused before that is tested.
echo "== what root is refused"
/tests/guard --color never a_guard_that_cannot_be_enforced one_string_names || failed=1
exit $failed

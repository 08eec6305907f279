#!/busybox/busybox sh
# First process of a guest: mounts what a host has, runs the command, reports its exit code on the console, powers
# off. Written for busybox; /.guest/command defines NONCE and run().
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/busybox HOME=/root
export PATH HOME
/busybox/busybox --install -s /busybox
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t devtmpfs -o nosuid devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
ln -s /proc/self/fd /dev/fd
for dir in /tmp /run /dev/shm; do mount -t tmpfs -o nosuid,nodev tmpfs "$dir"; done
chmod 1777 /tmp /dev/shm /var/tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
for module in /.guest/modules/*.ko; do
    [ -e "$module" ] && { insmod "$module" || echo "cannot load $module"; }
done
. /.guest/command
rm -rf /.guest
# What a command waits for that has not ended shortly before the guest is given up. The working directory stays where proc
# is, whatever the command mounts.
report() {
    unset NONCE
    cd /proc && sleep "$PATIENCE"
    echo "@@report: the command has not ended after $PATIENCE s"
    for process in [0-9]*; do
        line=$(tr '\0' ' ' < "$process/cmdline" | cut -c 1-200)
        # The kernel's own threads have none.
        [ "$line" ] || continue
        echo "$process: $line"
        for thread in "$process"/task/*; do
            echo "$thread: $(cat "$thread/wchan"), call $(cat "$thread/syscall")"
            cat "$thread/stack"
        done
    done
    # What each processor does.
    echo l > sysrq-trigger
}
report </dev/null >/dev/console 2>&1 &
if [ "$AS_INIT" ]; then
    # The command takes over as pid 1 and ends the guest by calling this.
    printf '#!/busybox/busybox sh\necho "@@%s exit $1" > /dev/console\n/busybox/poweroff -f\n' "$NONCE" > /guest-exit
    chmod 700 /guest-exit
    umount /sys/fs/cgroup
    echo "@@$NONCE start"
    unset NONCE
    run </dev/console >/dev/console 2>&1
fi
echo "@@$NONCE start"
# In a session of its own, without the nonce, and with nothing to read.
( unset NONCE; run ) </dev/null 2>&1
echo "@@$NONCE exit $?"
poweroff -f

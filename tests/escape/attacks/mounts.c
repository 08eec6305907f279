/* Mounts, roots and namespaces: undoing the view from inside. */
#include "attack.h"
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>

#define MS_REMOUNT_ 32
#define MS_BIND_ 4096
#define MNT_DETACH_ 2

static long mnt(const char *src, const char *dst, const char *type, unsigned long flags)
{
    return syscall(SYS_mount, src, dst, type, flags, NULL);
}

static int a_tmpfs(int argc, char **argv)
{
    (void)argc;
    return verdict(mnt("none", argv[0], "tmpfs", 0) == 0, "mount tmpfs");
}

static int a_bind(int argc, char **argv)
{
    (void)argc;
    return verdict(mnt(argv[0], argv[1], NULL, MS_BIND_) == 0, "bind mount");
}

static int a_remount(int argc, char **argv)
{
    (void)argc;
    if (mnt(NULL, argv[0], NULL, MS_REMOUNT_ | MS_BIND_)) return blk("remount");
    return verdict(open(argv[1], O_WRONLY) >= 0, "write after remount");
}

static int a_umount(int argc, char **argv)
{
    (void)argc;
    if (syscall(SYS_umount2, argv[0], MNT_DETACH_)) return blk("umount2");
    return esc("unmounted %s", argv[0]);
}

static int a_setattr(int argc, char **argv)
{
    struct { uint64_t set, clr, prop, userns; } a = {0, 1, 0, 0};
    (void)argc;
    return verdict(syscall(SYS_mount_setattr, AT_FDCWD, argv[0], 0x8000, &a, sizeof a) == 0, "mount_setattr");
}

static int a_fsopen(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int fd = syscall(SYS_fsopen, "tmpfs", 0);
    if (fd < 0) return blk("fsopen");
    if (syscall(SYS_fsconfig, fd, 6, NULL, NULL, 0)) return blk("fsconfig");
    return verdict(syscall(SYS_fsmount, fd, 0, 0) >= 0, "fsmount");
}

static int a_open_tree(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_open_tree, AT_FDCWD, argv[0], 1) >= 0, "open_tree clone");
}

static int a_move_mount(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_move_mount, AT_FDCWD, argv[0], AT_FDCWD, argv[1], 0) == 0, "move_mount");
}

/* chroot below, keep a directory descriptor above, walk out. */
static int a_chroot(int argc, char **argv)
{
    (void)argc;
    if (chroot(argv[0])) return blk("chroot");
    for (int i = 0; i < 40; i++)
        if (chdir("..")) break;
    return esc("chroot and walked up");
}

static int a_pivot(int argc, char **argv)
{
    (void)argc;
    if (mnt(argv[0], argv[0], NULL, MS_BIND_)) return blk("bind for pivot_root");
    return verdict(syscall(SYS_pivot_root, argv[0], argv[0]) == 0, "pivot_root");
}

static unsigned long flag_of(const char *n)
{
    static const struct { const char *n; unsigned long f; } t[] = {
        {"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS}, {"pid", CLONE_NEWPID}, {"net", CLONE_NEWNET},
        {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}, {"time", 0x80}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (!strcmp(t[i].n, n)) return t[i].f;
    return 0;
}

static int a_unshare(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_unshare, flag_of(argv[0])) == 0, argv[0]);
}

static int a_clone(int argc, char **argv)
{
    (void)argc;
    /* high bits set: the kernel's legacy clone looks at the low 32 only */
    unsigned long f = flag_of(argv[0]) | SIGCHLD;
    if (argc > 1) f |= 1UL << 40;
    pid_t p = syscall(SYS_clone, f, 0, 0, 0, 0);
    if (p == 0) _exit(0);
    if (p < 0) return blk("clone");
    waitpid(p, NULL, 0);
    return esc("clone with %s", argv[0]);
}

static int a_clone3(int argc, char **argv)
{
    struct clone_args c = {.flags = flag_of(argv[0]), .exit_signal = SIGCHLD};
    (void)argc;
    pid_t p = syscall(SYS_clone3, &c, sizeof c);
    if (p == 0) _exit(0);
    if (p < 0) return blk("clone3");
    waitpid(p, NULL, 0);
    return esc("clone3 with %s", argv[0]);
}

static int a_setns(int argc, char **argv)
{
    (void)argc;
    int fd = open(argv[0], O_RDONLY);
    if (fd < 0) return blk(argv[0]);
    return verdict(syscall(SYS_setns, fd, 0) == 0, "setns");
}

/* by pidfd: no need for a readable /proc entry */
static int a_setns_pidfd(int argc, char **argv)
{
    (void)argc;
    int fd = syscall(SYS_pidfd_open, atoi(argv[0]), 0);
    if (fd < 0) return blk("pidfd_open");
    return verdict(syscall(SYS_setns, fd, CLONE_NEWUTS) == 0, "setns by pidfd");
}

/* raise the ceiling on user namespaces again, then make one */
static int a_raise_userns(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY);
    if (fd >= 0) {
        if (write(fd, "100", 3) != 3) errno = EPERM;
        close(fd);
    }
    return verdict(syscall(SYS_unshare, CLONE_NEWUSER) == 0, "user namespace after raising the limit");
}

const struct attack mounts_attacks[] = {
    {"mount-tmpfs", a_tmpfs}, {"mount-bind", a_bind}, {"remount", a_remount}, {"umount", a_umount},
    {"mount-setattr", a_setattr}, {"fsopen", a_fsopen}, {"open-tree", a_open_tree}, {"move-mount", a_move_mount},
    {"chroot", a_chroot}, {"pivot", a_pivot}, {"unshare", a_unshare}, {"clone", a_clone}, {"clone3", a_clone3},
    {"setns", a_setns}, {"setns-pidfd", a_setns_pidfd}, {"raise-userns", a_raise_userns}, {0, 0}};

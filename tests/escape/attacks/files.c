/* Files: reading, writing and replacing what must not be, by name, link, handle and descriptor; metadata. */
#include "attack.h"
#include <dirent.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define TOKEN "cofferdam-was-here\n"

static int a_read(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY | O_NONBLOCK);
    (void)argc;
    return fd < 0 ? blk(argv[0]) : esc_read(fd, argv[0]);
}

/* Reads but never shows what it read: for files whose content is nobody's business. */
static int a_peek(int argc, char **argv)
{
    char c[8];
    int fd = open(argv[0], O_RDONLY | O_NONBLOCK);
    (void)argc;
    if (fd < 0) return blk(argv[0]);
    ssize_t n = read(fd, c, sizeof c);
    return verdict(n > 0, argv[0]);
}

static int a_open_read(int argc, char **argv)
{
    (void)argc;
    return verdict(open(argv[0], O_RDONLY | O_NONBLOCK) >= 0, argv[0]);
}

static int a_open_write(int argc, char **argv)
{
    (void)argc;
    return verdict(open(argv[0], O_WRONLY | O_NONBLOCK) >= 0, argv[0]);
}

static int write_through(int fd, const char *what)
{
    if (fd < 0) return blk(what);
    return verdict(write(fd, TOKEN, strlen(TOKEN)) > 0, what);
}

static int a_write(int argc, char **argv)
{
    (void)argc;
    return write_through(open(argv[0], O_WRONLY | O_NONBLOCK), argv[0]);
}

static int a_create(int argc, char **argv)
{
    (void)argc;
    return write_through(open(argv[0], O_WRONLY | O_CREAT | O_NONBLOCK, 0755), argv[0]);
}

static int a_truncate(int argc, char **argv)
{
    (void)argc;
    return verdict(truncate(argv[0], 0) == 0, argv[0]);
}

static int a_unlink(int argc, char **argv)
{
    (void)argc;
    return verdict(unlink(argv[0]) == 0, argv[0]);
}

static int a_rename(int argc, char **argv)
{
    (void)argc;
    return verdict(rename(argv[0], argv[1]) == 0, argv[1]);
}

static int a_exchange(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_renameat2, AT_FDCWD, argv[0], AT_FDCWD, argv[1], 2) == 0, argv[1]);
}

/* An exclusive lock through a descriptor that can only read. The host looks with a shared lock, for a moment each time. */
static int a_lock(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY | O_NONBLOCK);
    (void)argc;
    if (fd < 0) return blk(argv[0]);
    for (int i = 0; i < 200; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB)) {
            usleep(700000);
            return esc("%s is locked", argv[0]);
        }
        if (errno != EWOULDBLOCK) break;
        usleep(5000);
    }
    return blk("flock");
}

static int a_readdir(int argc, char **argv)
{
    DIR *d = opendir(argv[0]);
    struct dirent *e;
    (void)argc;
    if (!d) return blk(argv[0]);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.') return esc("%s holds %s", argv[0], e->d_name);
    errno = ENOENT;
    return blk("empty");
}

/* symlink-read TARGET NAME / symlink-write: by a symbolic link made inside. */
static int a_symlink_read(int argc, char **argv)
{
    if (symlink(argv[0], argv[1])) return cant("symlink %s: %s", argv[1], strerror(errno));
    return a_read(argc - 1, argv + 1);
}

static int a_symlink_write(int argc, char **argv)
{
    if (symlink(argv[0], argv[1])) return cant("symlink %s: %s", argv[1], strerror(errno));
    return a_write(argc - 1, argv + 1);
}

static int a_symlink_at(int argc, char **argv)
{
    (void)argc;
    return verdict(symlink(argv[0], argv[1]) == 0, argv[1]);
}

/* A directory replaced by a link, with a file created behind it. */
static int a_symlink_dir(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    if (rename(argv[1], argv[2])) return blk(argv[1]);
    if (symlink(argv[0], argv[1])) return blk(argv[1]);
    snprintf(path, sizeof path, "%s/planted", argv[1]);
    put_file(path, TOKEN); /* what is behind the link may well refuse; the host looks at what was kept */
    return esc("%s is now a link", argv[1]);
}

static int a_link_read(int argc, char **argv)
{
    (void)argc;
    if (link(argv[0], argv[1])) return blk("link");
    return a_read(1, argv + 1);
}

static int a_link_write(int argc, char **argv)
{
    (void)argc;
    if (link(argv[0], argv[1])) return blk("link");
    return a_write(1, argv + 1);
}

/* dirfd-read DIR NAME: by the directory's descriptor and /proc/self/fd. */
static int a_dirfd_read(int argc, char **argv)
{
    char path[4096];
    int d = open(argv[0], O_PATH | O_DIRECTORY);
    (void)argc;
    if (d < 0) return blk(argv[0]);
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", d, argv[1]);
    return a_read(1, (char *[]){path});
}

static int a_cwd_read(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    if (chdir(argv[0])) return blk(argv[0]);
    snprintf(path, sizeof path, "/proc/self/cwd/%s", argv[1]);
    return a_read(1, (char *[]){path});
}

/* reopen-write FILE: opened for reading, reopened for writing through /proc/self/fd. */
static int a_reopen_write(int argc, char **argv)
{
    char path[64];
    int fd = open(argv[0], O_RDONLY);
    (void)argc;
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return write_through(open(path, O_WRONLY), argv[0]);
}

/* mv-read DIR ELSEWHERE NAME: moves an ancestor away and reads under its new name. */
static int a_mv_read(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    if (rename(argv[0], argv[1])) return blk("rename");
    snprintf(path, sizeof path, "%s/%s", argv[1], argv[2]);
    return a_read(1, (char *[]){path});
}

/* mv-plant DIR ELSEWHERE SUB NAME: moves an ancestor away and builds the same names anew. */
static int a_mv_plant(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    if (rename(argv[0], argv[1])) return blk("rename");
    if (mkdir(argv[0], 0777)) return blk("mkdir");
    snprintf(path, sizeof path, "%s/%s", argv[0], argv[2]);
    if (mkdir(path, 0777)) return blk("mkdir");
    snprintf(path, sizeof path, "%s/%s/%s", argv[0], argv[2], argv[3]);
    return a_create(1, (char *[]){path});
}

/* mkdir-plant DIR NAME: makes a directory that is not there yet and a file in it. */
static int a_mkdir_plant(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    for (char *p = argv[0] + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(argv[0], 0777); /* most exist already */
        *p = '/';
    }
    if (mkdir(argv[0], 0777) && errno != EEXIST) return blk("mkdir");
    snprintf(path, sizeof path, "%s/%s", argv[0], argv[1]);
    return a_create(1, (char *[]){path});
}

static int a_unlink_plant(int argc, char **argv)
{
    (void)argc;
    if (unlink(argv[0])) return blk("unlink");
    return a_create(1, argv);
}

/* rename-over NEW OLD: writes NEW and renames it over OLD. */
static int a_rename_over(int argc, char **argv)
{
    if (put_file(argv[0], TOKEN)) return cant("%s: %s", argv[0], strerror(errno));
    return a_rename(argc, argv);
}

/* handle FILE prints its handle (outside); handle-read MOUNT HEX opens by it. */
static int a_handle(int argc, char **argv)
{
    struct { struct file_handle h; unsigned char b[128]; } u = {.h.handle_bytes = 128};
    int id;
    (void)argc;
    if (name_to_handle_at(AT_FDCWD, argv[0], &u.h, &id, 0)) return cant("handle: %s", strerror(errno));
    printf("%d ", u.h.handle_type);
    for (unsigned i = 0; i < u.h.handle_bytes; i++) printf("%02x", u.h.f_handle[i]);
    printf("\n");
    return 0;
}

static int a_handle_read(int argc, char **argv)
{
    struct { struct file_handle h; unsigned char b[128]; } u = {0};
    int m = open(argv[0], O_RDONLY | O_DIRECTORY);
    (void)argc;
    if (m < 0) return blk(argv[0]);
    u.h.handle_type = atoi(argv[1]);
    for (const char *p = argv[2]; p[0] && p[1] && u.h.handle_bytes < 128; p += 2) {
        unsigned v;
        sscanf(p, "%2x", &v);
        u.h.f_handle[u.h.handle_bytes++] = v;
    }
    int fd = open_by_handle_at(m, &u.h, O_RDONLY);
    return fd < 0 ? blk("open_by_handle_at") : esc_read(fd, "by handle");
}

static int a_suid_chmod(int argc, char **argv)
{
    (void)argc;
    if (put_file(argv[0], TOKEN)) return cant("%s: %s", argv[0], strerror(errno));
    return verdict(chmod(argv[0], 04755) == 0, "chmod 4755");
}

static int a_suid_create(int argc, char **argv)
{
    struct stat s;
    (void)argc;
    int fd = open(argv[0], O_WRONLY | O_CREAT, 04755);
    if (fd < 0) return blk("create 4755");
    if (fstat(fd, &s)) return cant("fstat");
    errno = EPERM;
    return verdict(s.st_mode & S_ISUID, "create 4755");
}

static int a_suid_fchmodat2(int argc, char **argv)
{
    (void)argc;
    if (put_file(argv[0], TOKEN)) return cant("%s: %s", argv[0], strerror(errno));
    return verdict(syscall(SYS_fchmodat2, AT_FDCWD, argv[0], 02755, 0) == 0, "fchmodat2 2755");
}

static int a_suid_mknod(int argc, char **argv)
{
    struct stat s;
    (void)argc;
    if (mknod(argv[0], S_IFREG | 04755, 0)) return blk("mknod 4755");
    if (stat(argv[0], &s)) return cant("stat");
    errno = EPERM;
    return verdict(s.st_mode & S_ISUID, "mknod 4755");
}

static int a_mkfifo(int argc, char **argv)
{
    (void)argc;
    return verdict(mkfifo(argv[0], 0666) == 0, "mkfifo");
}

static int a_mknod(int argc, char **argv)
{
    int block = !strcmp(argv[1], "b");
    (void)argc;
    return verdict(mknod(argv[0], (block ? S_IFBLK : S_IFCHR) | 0666, makedev(atoi(argv[2]), atoi(argv[3]))) == 0, "mknod");
}

/* overlay whiteout: a 0:0 character device may be made without privilege */
static int a_whiteout(int argc, char **argv)
{
    (void)argc;
    return verdict(mknod(argv[0], S_IFCHR, 0) == 0, "mknod 0:0");
}

static int a_chmod(int argc, char **argv)
{
    (void)argc;
    return verdict(chmod(argv[0], 0600) == 0, "chmod");
}

static int a_fchmod(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY);
    (void)argc;
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    return verdict(fchmod(fd, 0600) == 0, "fchmod");
}

static int a_fchmodat2(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_fchmodat2, AT_FDCWD, argv[0], 0600, 0) == 0, "fchmodat2");
}

static int a_chown(int argc, char **argv)
{
    (void)argc;
    return verdict(chown(argv[0], getuid(), getgid()) == 0, "chown to oneself");
}

static int a_utimes(int argc, char **argv)
{
    struct timespec t[2] = {{1000, 0}, {1000, 0}};
    (void)argc;
    return verdict(utimensat(AT_FDCWD, argv[0], t, 0) == 0, "utimensat");
}

static int a_setxattr(int argc, char **argv)
{
    (void)argc;
    return verdict(setxattr(argv[0], "user.cofferdam", "x", 1, 0) == 0, "setxattr");
}

static int a_setflags(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY), flags;
    (void)argc;
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags)) return blk("FS_IOC_GETFLAGS");
    flags ^= FS_NODUMP_FL;
    return verdict(ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0, "FS_IOC_SETFLAGS");
}

static int a_fifo_write(int argc, char **argv)
{
    int fd = open(argv[0], O_WRONLY | O_NONBLOCK);
    (void)argc;
    return write_through(fd, "FIFO for writing");
}

static int a_fifo_rdwr(int argc, char **argv)
{
    int fd = open(argv[0], O_RDWR | O_NONBLOCK);
    (void)argc;
    return write_through(fd, "FIFO read-write");
}

const struct attack files_attacks[] = {
    {"read", a_read}, {"peek", a_peek}, {"open-read", a_open_read}, {"open-write", a_open_write}, {"write", a_write},
    {"create", a_create}, {"truncate", a_truncate}, {"unlink", a_unlink}, {"rename", a_rename},
    {"exchange", a_exchange}, {"readdir", a_readdir}, {"lock", a_lock}, {"symlink-read", a_symlink_read},
    {"symlink-write", a_symlink_write}, {"symlink-at", a_symlink_at}, {"symlink-dir", a_symlink_dir},
    {"link-read", a_link_read}, {"link-write", a_link_write}, {"dirfd-read", a_dirfd_read}, {"cwd-read", a_cwd_read},
    {"reopen-write", a_reopen_write}, {"mv-read", a_mv_read}, {"mv-plant", a_mv_plant}, {"mkdir-plant", a_mkdir_plant},
    {"unlink-plant", a_unlink_plant}, {"rename-over", a_rename_over}, {"handle", a_handle},
    {"handle-read", a_handle_read}, {"suid-chmod", a_suid_chmod}, {"suid-create", a_suid_create},
    {"suid-fchmodat2", a_suid_fchmodat2}, {"suid-mknod", a_suid_mknod}, {"mkfifo", a_mkfifo}, {"mknod", a_mknod},
    {"whiteout", a_whiteout}, {"chmod", a_chmod}, {"fchmod", a_fchmod}, {"fchmodat2", a_fchmodat2}, {"chown", a_chown},
    {"utimes", a_utimes}, {"setxattr", a_setxattr}, {"setflags", a_setflags}, {"fifo-write", a_fifo_write},
    {"fifo-rdwr", a_fifo_rdwr}, {0, 0}};

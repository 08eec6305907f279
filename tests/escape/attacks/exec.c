/* Running what may not be run: children under spawn: false, memory files, the dynamic linker, noexec trees. */
#include "attack.h"
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <sys/sendfile.h>

static int a_fork(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    pid_t p = fork();
    if (p == 0) _exit(0);
    if (p < 0) return blk("fork");
    waitpid(p, NULL, 0);
    return esc("a child by fork");
}

static int a_vfork(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    pid_t p = vfork();
    if (p == 0) _exit(0);
    return verdict(p > 0, "a child by vfork");
}

static int a_clone3(int argc, char **argv)
{
    struct clone_args c = {.exit_signal = SIGCHLD};
    (void)argc;
    (void)argv;
    pid_t p = syscall(SYS_clone3, &c, sizeof c);
    if (p == 0) _exit(0);
    return verdict(p > 0, "a child by clone3");
}

static int leave(void *x)
{
    (void)x;
    _exit(0);
}

/* shares memory like a thread, but is a process of its own */
static int a_clone_vm(int argc, char **argv)
{
    static char stack[65536] __attribute__((aligned(16)));
    (void)argc;
    (void)argv;
    return verdict(clone(leave, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL) > 0, "a child that shares memory");
}

static int a_exec(int argc, char **argv)
{
    (void)argc;
    execv(argv[0], argv);
    return blk("execve");
}

static int a_spawn(int argc, char **argv)
{
    pid_t p;
    (void)argc;
    int e = posix_spawn(&p, argv[0], NULL, NULL, argv, NULL);
    errno = e;
    return e ? blk("posix_spawn") : pass_on(p, "posix_spawn");
}

static int a_execat(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
    (void)argc;
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH);
    return blk("execveat");
}

/* Makes the one descriptor from which exec is allowed anew. */
static int a_exec_4095(int argc, char **argv)
{
    int fd = open(argv[0], O_RDONLY);
    (void)argc;
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    if (dup2(fd, 4095) != 4095) return blk("dup2 to 4095");
    syscall(SYS_execveat, 4095, "", argv, NULL, AT_EMPTY_PATH);
    return blk("execveat of 4095");
}

static int copy_to(int to, const char *from)
{
    int fd = open(from, O_RDONLY);
    struct stat s;
    if (fd < 0 || fstat(fd, &s)) return -1;
    for (off_t o = 0; o < s.st_size;)
        if (sendfile(to, fd, &o, s.st_size - o) <= 0) return -1;
    return close(fd);
}

static int a_memfd(int argc, char **argv)
{
    int fd = syscall(SYS_memfd_create, "payload", 1 /* MFD_CLOEXEC */);
    (void)argc;
    if (fd < 0) return blk("memfd_create");
    if (copy_to(fd, argv[0])) return cant("copy: %s", strerror(errno));
    syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH);
    return blk("execveat of a memfd");
}

/* copy-exec FROM TO ARGS: drops a program and runs it. */
static int a_copy_exec(int argc, char **argv)
{
    (void)argc;
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (fd < 0) return cant("%s: %s", argv[1], strerror(errno));
    if (copy_to(fd, argv[0])) return cant("copy: %s", strerror(errno));
    fchmod(fd, 0755);
    close(fd);
    pid_t p = fork();
    if (p == 0) {
        execv(argv[1], argv + 1); /* ETXTBSY: whoever made the file for us had not let go of it */
        _exit(errno == EACCES || errno == EPERM ? blk("exec of the dropped program") : cant("exec: %s", strerror(errno)));
    }
    return pass_on(p, "dropped program");
}

/* ldso-copy LINKER FROM TO: drops a dynamic program and has the linker map it. */
static int a_ldso_copy(int argc, char **argv)
{
    (void)argc;
    int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0755);
    if (fd < 0) return cant("%s: %s", argv[2], strerror(errno));
    if (copy_to(fd, argv[1])) return cant("copy: %s", strerror(errno));
    close(fd);
    pid_t p = fork();
    if (p == 0) {
        execl(argv[0], argv[0], argv[2], NULL);
        _exit(cant("exec of the linker: %s", strerror(errno)));
    }
    int status;
    if (p < 0) return cant("fork");
    waitpid(p, &status, 0);
    errno = EPERM;
    return verdict(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the linker ran the dropped program");
}

/* What a privileged program would do: says who it is. */
static int a_whoami(int argc, char **argv)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    (void)argc;
    (void)argv;
    if (f)
        while (fgets(line, sizeof line, f))
            if (!strncmp(line, "CapEff:", 7) && strtoul(line + 7, NULL, 16)) return esc("euid=%d with %s", geteuid(), line);
    if (argc > 0 && geteuid() == (uid_t)atoi(argv[0])) return esc("euid=%d", geteuid());
    errno = EPERM;
    return blk("no privilege gained");
}

const struct attack exec_attacks[] = {
    {"fork", a_fork}, {"vfork", a_vfork}, {"clone3-child", a_clone3}, {"clone-vm", a_clone_vm}, {"exec", a_exec},
    {"spawn", a_spawn}, {"execat", a_execat}, {"exec-4095", a_exec_4095}, {"memfd-exec", a_memfd},
    {"copy-exec", a_copy_exec}, {"ldso-copy", a_ldso_copy}, {"whoami", a_whoami}, {0, 0}};

/* Other processes: reading, tracing, signalling and steering what lives outside, and pid 1. */
#include "attack.h"
#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

static pid_t pid_of(const char *s) { return atoi(s); }

static int a_attach(int argc, char **argv)
{
    pid_t p = pid_of(argv[0]);
    (void)argc;
    if (ptrace(PTRACE_ATTACH, p, 0, 0)) return blk("PTRACE_ATTACH");
    waitpid(p, NULL, __WALL);
    ptrace(PTRACE_DETACH, p, 0, 0);
    return esc("attached to %d", p);
}

static int a_seize(int argc, char **argv)
{
    (void)argc;
    if (ptrace(PTRACE_SEIZE, pid_of(argv[0]), 0, 0)) return blk("PTRACE_SEIZE");
    return esc("seized %s", argv[0]);
}

/* A child asks to be traced and its parent rewrites what it does: the way around a filter that checks once. */
static int a_traceme(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return verdict(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0, "PTRACE_TRACEME");
}

static int a_vm_read(int argc, char **argv)
{
    char buf[128] = {0};
    struct iovec l = {buf, sizeof buf - 1}, r = {(void *)strtoul(argv[1], NULL, 16), sizeof buf - 1};
    (void)argc;
    if (process_vm_readv(pid_of(argv[0]), &l, 1, &r, 1, 0) <= 0) return blk("process_vm_readv");
    return esc("memory: %s", buf);
}

static int a_vm_write(int argc, char **argv)
{
    char buf[] = "overwritten";
    struct iovec l = {buf, sizeof buf}, r = {(void *)strtoul(argv[1], NULL, 16), sizeof buf};
    (void)argc;
    return verdict(process_vm_writev(pid_of(argv[0]), &l, 1, &r, 1, 0) > 0, "process_vm_writev");
}

static int a_proc_mem(int argc, char **argv)
{
    char path[64], buf[128] = {0};
    (void)argc;
    snprintf(path, sizeof path, "/proc/%s/mem", argv[0]);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return blk(path);
    if (pread(fd, buf, sizeof buf - 1, strtoul(argv[1], NULL, 16)) <= 0) return blk("pread");
    return esc("memory: %s", buf);
}

static int a_getfd(int argc, char **argv)
{
    int p = syscall(SYS_pidfd_open, pid_of(argv[0]), 0);
    (void)argc;
    if (p < 0) return blk("pidfd_open");
    int fd = syscall(SYS_pidfd_getfd, p, 9, 0);
    return fd < 0 ? blk("pidfd_getfd") : esc_read(fd, "stolen descriptor");
}

static int a_kcmp(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_kcmp, getpid(), pid_of(argv[0]), 1, 0, 0) >= 0, "kcmp");
}

static int a_process_madvise(int argc, char **argv)
{
    int p = syscall(SYS_pidfd_open, pid_of(argv[0]), 0);
    struct iovec r = {(void *)(strtoul(argv[1], NULL, 16) & ~4095UL), 4096};
    (void)argc;
    if (p < 0) return blk("pidfd_open");
    return verdict(syscall(SYS_process_madvise, p, &r, 1, 20 /* MADV_COLD */, 0) >= 0, "process_madvise");
}

static int a_pidfd_open(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_pidfd_open, pid_of(argv[0]), 0) >= 0, "pidfd_open");
}

/* Walks /proc for a process whose command line holds the needle. */
static int a_find(int argc, char **argv)
{
    char path[300], buf[4096];
    DIR *d = opendir("/proc");
    struct dirent *e;
    (void)argc;
    if (!d) return blk("/proc");
    while ((e = readdir(d))) {
        if (e->d_name[0] < '0' || e->d_name[0] > '9' || atoi(e->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t n = read(fd, buf, sizeof buf - 1);
        close(fd);
        if (n <= 0) continue;
        for (ssize_t i = 0; i < n; i++)
            if (!buf[i]) buf[i] = ' ';
        buf[n] = 0;
        /* only strings that hold the needle in an earlier argument than ours */
        if (strstr(buf, argv[0]) && strstr(buf, " victim ")) return esc("pid %s: %s", e->d_name, argv[0]);
    }
    errno = ENOENT;
    return blk("no such process seen");
}

/* proc1-mem NEEDLE: reads all writable memory of pid 1. */
static int a_proc1_mem(int argc, char **argv)
{
    FILE *m = fopen("/proc/1/maps", "r");
    char line[512], *page = malloc(1 << 16);
    (void)argc;
    if (!m) return blk("/proc/1/maps");
    int fd = open("/proc/1/mem", O_RDONLY), seen = 0;
    if (fd < 0) return blk("/proc/1/mem");
    while (fgets(line, sizeof line, m)) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx", &a, &b) != 2) continue;
        for (; a < b; a += 1 << 16) {
            size_t want = b - a < 1 << 16 ? b - a : 1 << 16;
            ssize_t n = pread(fd, page, want, a);
            if (n <= 0) break;
            seen = 1;
            if (memmem(page, n, argv[0], strlen(argv[0]))) return esc("found %s", argv[0]);
        }
    }
    if (seen) return esc("memory of pid 1 is readable");
    return blk("/proc/1/mem");
}

/* proc1-exe: runs or reads what pid 1 is. */
static int a_proc1_exe(int argc, char **argv)
{
    int fd = open("/proc/1/exe", O_RDONLY);
    (void)argc;
    (void)argv;
    return verdict(fd >= 0, "/proc/1/exe");
}

static int a_proc1_fd(int argc, char **argv)
{
    char path[64];
    (void)argc;
    (void)argv;
    for (int i = 3; i < 256; i++) {
        snprintf(path, sizeof path, "/proc/1/fd/%d", i);
        int fd = open(path, O_RDONLY | O_NONBLOCK);
        if (fd >= 0) return esc_read(fd, path);
        if (errno != ENOENT) return blk(path);
    }
    errno = ENOENT;
    return blk("/proc/1/fd");
}

static int a_parent_environ(int argc, char **argv)
{
    char path[64];
    (void)argc;
    (void)argv;
    snprintf(path, sizeof path, "/proc/%d/environ", getppid() ? getppid() : 1);
    char buf[65536];
    int fd = open(path, O_RDONLY);
    if (fd < 0) return blk(path);
    ssize_t n = read(fd, buf, sizeof buf);
    if (n <= 0) return blk(path);
    char *hit = memmem(buf, n, argv[0], strlen(argv[0]));
    errno = ENOENT;
    return hit ? esc("%s", argv[0]) : blk("parent's variables hold nothing of it");
}

/* any ancestor's command line or variables, by walking PPid */
static int a_proc_environ(int argc, char **argv)
{
    char path[64];
    (void)argc;
    snprintf(path, sizeof path, "/proc/%s/environ", argv[0]);
    int fd = open(path, O_RDONLY);
    return fd < 0 ? blk(path) : esc_read(fd, path);
}

/* proc-path PID SUFFIX: by /proc/PID/root, cwd or fd of a process outside */
static int a_proc_path(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    snprintf(path, sizeof path, "/proc/%s/%s", argv[0], argv[1]);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    return fd < 0 ? blk(path) : esc_read(fd, path);
}

static int a_kill(int argc, char **argv)
{
    (void)argc;
    return verdict(kill(pid_of(argv[0]), SIGUSR1) == 0, "kill");
}

static int a_tgkill(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_tgkill, pid_of(argv[0]), pid_of(argv[0]), SIGUSR1) == 0, "tgkill");
}

static int a_tkill(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_tkill, pid_of(argv[0]), SIGUSR1) == 0, "tkill");
}

static int a_sigqueue(int argc, char **argv)
{
    (void)argc;
    return verdict(sigqueue(pid_of(argv[0]), SIGUSR1, (union sigval){0}) == 0, "sigqueue");
}

static int a_pidfd_signal(int argc, char **argv)
{
    int p = syscall(SYS_pidfd_open, pid_of(argv[0]), 0);
    (void)argc;
    if (p < 0) return blk("pidfd_open");
    return verdict(syscall(SYS_pidfd_send_signal, p, SIGUSR1, NULL, 0) == 0, "pidfd_send_signal");
}

/* by an open /proc/PID directory, which older interfaces accept as a pidfd */
static int a_procfd_signal(int argc, char **argv)
{
    char path[64];
    (void)argc;
    snprintf(path, sizeof path, "/proc/%s", argv[0]);
    int p = open(path, O_RDONLY | O_DIRECTORY);
    if (p < 0) return blk(path);
    return verdict(syscall(SYS_pidfd_send_signal, p, SIGUSR1, NULL, 0) == 0, "pidfd_send_signal by /proc");
}

/* signal 0 only: whether anybody else could be signalled at all */
static int a_kill_all(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return verdict(kill(-1, 0) == 0, "kill(-1, 0)");
}

static int a_kill_group(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    signal(SIGUSR1, SIG_IGN);
    return verdict(kill(0, SIGUSR1) == 0, "kill(0)");
}

/* Makes the kernel send the signal for us when a pipe becomes readable. */
static int a_sigio(int argc, char **argv)
{
    int p[2];
    (void)argc;
    if (pipe(p)) return cant("pipe");
    if (fcntl(p[0], F_SETOWN, pid_of(argv[0])) || fcntl(p[0], F_SETSIG, SIGUSR1)) return blk("F_SETOWN");
    if (fcntl(p[0], F_SETFL, O_ASYNC | O_NONBLOCK)) return blk("O_ASYNC");
    if (write(p[1], "x", 1) != 1) return cant("write");
    usleep(100000);
    return esc("asked the kernel to signal %s", argv[0]);
}

static int a_renice(int argc, char **argv)
{
    (void)argc;
    return verdict(setpriority(PRIO_PROCESS, pid_of(argv[0]), 11) == 0, "setpriority");
}

static int a_affinity(int argc, char **argv)
{
    cpu_set_t s;
    (void)argc;
    CPU_ZERO(&s);
    CPU_SET(0, &s);
    return verdict(sched_setaffinity(pid_of(argv[0]), sizeof s, &s) == 0, "sched_setaffinity");
}

static int a_scheduler(int argc, char **argv)
{
    struct sched_param p = {0};
    (void)argc;
    return verdict(sched_setscheduler(pid_of(argv[0]), SCHED_BATCH, &p) == 0, "sched_setscheduler");
}

static int a_ioprio(int argc, char **argv)
{
    (void)argc;
    return verdict(syscall(SYS_ioprio_set, 1, pid_of(argv[0]), (3 << 13)) == 0, "ioprio_set");
}

static int a_prlimit(int argc, char **argv)
{
    struct rlimit l = {1234, 4321};
    (void)argc;
    return verdict(prlimit(pid_of(argv[0]), RLIMIT_NOFILE, &l, NULL) == 0, "prlimit");
}

/* Its own parent, whoever that is: supervisor or init. Signal 0 and tracing only. */
static int a_ptrace_parent(int argc, char **argv)
{
    pid_t p = getppid() ? getppid() : 1;
    (void)argc;
    (void)argv;
    if (ptrace(PTRACE_SEIZE, p, 0, 0)) return blk("PTRACE_SEIZE of the parent");
    return esc("seized the parent");
}

static int a_kill_parent(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    pid_t p = getppid() ? getppid() : 1;
    if (kill(p, SIGSTOP)) return blk("SIGSTOP to the parent");
    usleep(100000);
    char path[64], buf[512];
    snprintf(path, sizeof path, "/proc/%d/stat", p);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof buf - 1);
    buf[n > 0 ? n : 0] = 0;
    char *close_paren = strrchr(buf, ')');
    int stopped = close_paren && (close_paren[2] == 'T' || close_paren[2] == 't');
    kill(p, SIGCONT);
    errno = EPERM;
    return verdict(stopped, "the parent stopped");
}

const struct attack procs_attacks[] = {
    {"ptrace-attach", a_attach}, {"ptrace-seize", a_seize}, {"ptrace-traceme", a_traceme}, {"vm-read", a_vm_read},
    {"vm-write", a_vm_write}, {"proc-mem", a_proc_mem}, {"getfd", a_getfd}, {"kcmp", a_kcmp},
    {"process-madvise", a_process_madvise}, {"pidfd-open", a_pidfd_open}, {"find-process", a_find},
    {"proc1-mem", a_proc1_mem}, {"proc1-exe", a_proc1_exe}, {"proc1-fd", a_proc1_fd},
    {"parent-environ", a_parent_environ}, {"proc-environ", a_proc_environ}, {"proc-path", a_proc_path},
    {"kill", a_kill}, {"tgkill", a_tgkill}, {"tkill", a_tkill}, {"sigqueue", a_sigqueue},
    {"pidfd-signal", a_pidfd_signal}, {"procfd-signal", a_procfd_signal}, {"kill-all", a_kill_all},
    {"kill-group", a_kill_group}, {"sigio", a_sigio}, {"renice", a_renice}, {"affinity", a_affinity},
    {"scheduler", a_scheduler}, {"ioprio", a_ioprio}, {"prlimit", a_prlimit}, {"ptrace-parent", a_ptrace_parent},
    {"kill-parent", a_kill_parent}, {0, 0}};

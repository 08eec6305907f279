/* State that leaks in or out: descriptors, variables, names, keys, IPC objects, ids, capabilities, core dumps. */
#include "attack.h"
#include <dirent.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

extern char **environ;

/* Reads every descriptor it was born with. */
static int a_fds(int argc, char **argv)
{
    char buf[256];
    (void)argc;
    for (int i = 3; i < 4200; i++) {
        if (fcntl(i, F_GETFD) < 0) continue;
        ssize_t n = pread(i, buf, sizeof buf - 1, 0);
        buf[n > 0 ? n : 0] = 0;
        if (argc == 0 || strstr(buf, argv[0])) return esc("descriptor %d: %s", i, buf);
    }
    errno = EBADF;
    return blk("no descriptor beyond 0, 1, 2");
}

/* A directory descriptor left open: climbs out of it. */
static int a_fd_climb(int argc, char **argv)
{
    (void)argc;
    for (int i = 3; i < 1024; i++) {
        int fd = openat(i, argv[0], O_RDONLY);
        if (fd >= 0) return esc_read(fd, "by an inherited directory");
    }
    errno = EBADF;
    return blk("no inherited directory");
}

/* reopen-std N: through /proc/self/fd, truncating what is behind. */
static int a_reopen(int argc, char **argv)
{
    char path[64];
    (void)argc;
    snprintf(path, sizeof path, "/proc/self/fd/%s", argv[0]);
    int fd = open(path, O_WRONLY | O_TRUNC | O_NONBLOCK);
    if (fd < 0) return blk(path);
    struct stat s;
    fstat(fd, &s);
    errno = EPERM;
    return verdict(S_ISREG(s.st_mode), "reopened a regular file of the host");
}

static int a_ftruncate(int argc, char **argv)
{
    (void)argc;
    return verdict(ftruncate(atoi(argv[0]), 0) == 0, "ftruncate of an inherited stream");
}

static int a_nonblock(int argc, char **argv)
{
    (void)argc;
    return verdict(fcntl(atoi(argv[0]), F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK on the stream");
}

static int a_environ(int argc, char **argv)
{
    (void)argc;
    for (char **e = environ; *e; e++)
        if (strstr(*e, argv[0])) return esc("%s", *e);
    errno = ENOENT;
    return blk("no such variable");
}

static int a_uname(int argc, char **argv)
{
    struct utsname u;
    (void)argc;
    uname(&u);
    errno = ENOENT;
    return verdict(!strcmp(u.nodename, argv[0]), u.nodename);
}

/* file-holds FILE TEXT */
static int a_file_holds(int argc, char **argv)
{
    char buf[4096];
    int fd = open(argv[0], O_RDONLY);
    (void)argc;
    if (fd < 0) return blk(argv[0]);
    ssize_t n = read(fd, buf, sizeof buf - 1);
    buf[n > 0 ? n : 0] = 0;
    errno = ENOENT;
    return verdict(strstr(buf, argv[1]) != NULL, argv[0]);
}

/* The names of the host's network devices. */
static int a_netdevs(int argc, char **argv)
{
    DIR *d = opendir(argv[0]);
    struct dirent *e;
    (void)argc;
    if (!d) return blk(argv[0]);
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && strcmp(e->d_name, "lo")) return esc("device %s", e->d_name);
    errno = ENOENT;
    return blk("only lo");
}

static int a_sigmask(int argc, char **argv)
{
    sigset_t s;
    (void)argc;
    (void)argv;
    sigprocmask(SIG_BLOCK, NULL, &s);
    for (int i = 1; i < 32; i++)
        if (sigismember(&s, i) == 1) return esc("signal %d blocked from the start", i);
    errno = ENOENT;
    return blk("clean mask");
}

static int a_sigign(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 1; i < 32; i++) {
        struct sigaction s;
        if (i == SIGALRM || sigaction(i, NULL, &s)) continue;
        if (s.sa_handler == SIG_IGN) return esc("signal %d ignored from the start", i);
    }
    errno = ENOENT;
    return blk("default dispositions");
}

static long search(int ring, const char *name) { return syscall(SYS_keyctl, KEYCTL_SEARCH, ring, "user", name, 0); }

static int show_key(long key, const char *what)
{
    char buf[256];
    if (key < 0) return blk(what);
    long n = syscall(SYS_keyctl, KEYCTL_READ, key, buf, sizeof buf - 1);
    if (n < 0) return blk("read key");
    buf[n < 255 ? n : 255] = 0;
    return esc("key: %s", buf);
}

static int a_key_session(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return show_key(search(KEY_SPEC_SESSION_KEYRING, "cofferdam-victim"), "session keyring");
}

static int a_key_user(int argc, char **argv)
{
    (void)argc;
    return show_key(search(KEY_SPEC_USER_KEYRING, argv[0]), "user keyring");
}

static int a_key_request(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return show_key(syscall(SYS_request_key, "user", "cofferdam-victim", NULL, 0), "request_key");
}

/* Leaves something behind in the user's keyring. */
static int a_key_leave(int argc, char **argv)
{
    (void)argc;
    long key = syscall(SYS_add_key, "user", argv[0], "left", 4, KEY_SPEC_USER_KEYRING);
    if (key >= 0) syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, key, 60);
    return verdict(key >= 0, "add_key");
}

static int a_key_persistent(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return verdict(syscall(SYS_keyctl, KEYCTL_GET_PERSISTENT, -1, KEY_SPEC_PROCESS_KEYRING) >= 0, "persistent keyring");
}

static int a_proc_keys(int argc, char **argv)
{
    char *buf = malloc(1 << 16);
    (void)argc;
    int fd = open("/proc/keys", O_RDONLY);
    if (fd < 0) return blk("/proc/keys");
    /* One read gives a page at the most, and there may be more keys than that. */
    size_t have = 0;
    for (ssize_t n; have < (1 << 16) - 1 && (n = read(fd, buf + have, (1 << 16) - 1 - have)) > 0;) have += n;
    buf[have] = 0;
    errno = ENOENT;
    return verdict(strstr(buf, argv[0]) != NULL, "/proc/keys");
}

/* IPC objects: *-make run outside, the others inside. Keys and names come from the harness. */
static int a_shm_make(int argc, char **argv)
{
    (void)argc;
    int id = shmget(atoi(argv[0]), 4096, IPC_CREAT | 0666);
    char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
    if (p == (char *)-1) return cant("shm: %s", strerror(errno));
    strcpy(p, argv[1]);
    int q = msgget(atoi(argv[0]), IPC_CREAT | 0666), s = semget(atoi(argv[0]), 1, IPC_CREAT | 0666);
    if (q < 0 || s < 0) return cant("msg, sem: %s", strerror(errno));
    struct { long type; char text[128]; } m = {1, ""};
    strcpy(m.text, argv[1]);
    if (msgsnd(q, &m, sizeof m.text, IPC_NOWAIT)) return cant("msgsnd");
    mqd_t mq = mq_open(argv[2], O_CREAT | O_RDWR, 0666, NULL);
    if (mq < 0 || mq_send(mq, argv[1], strlen(argv[1]) + 1, 0)) return cant("mq: %s", strerror(errno));
    return esc("made");
}

static int a_ipc_remove(int argc, char **argv)
{
    (void)argc;
    int k = atoi(argv[0]);
    shmctl(shmget(k, 0, 0), IPC_RMID, NULL);
    msgctl(msgget(k, 0), IPC_RMID, NULL);
    semctl(semget(k, 1, 0), 0, IPC_RMID);
    mq_unlink(argv[1]);
    return 0;
}

static int a_shm_read(int argc, char **argv)
{
    (void)argc;
    int id = shmget(atoi(argv[0]), 0, 0);
    if (id < 0) return blk("shmget");
    char *p = shmat(id, NULL, SHM_RDONLY);
    return p == (char *)-1 ? blk("shmat") : esc("%s", p);
}

static int a_msg_read(int argc, char **argv)
{
    struct { long type; char text[128]; } m;
    (void)argc;
    int q = msgget(atoi(argv[0]), 0);
    if (q < 0) return blk("msgget");
    return msgrcv(q, &m, sizeof m.text, 0, IPC_NOWAIT) < 0 ? blk("msgrcv") : esc("%s", m.text);
}

static int a_sem_write(int argc, char **argv)
{
    struct sembuf b = {0, 1, 0};
    (void)argc;
    int s = semget(atoi(argv[0]), 1, 0);
    if (s < 0) return blk("semget");
    return verdict(semop(s, &b, 1) == 0, "semop");
}

static int a_mq_read(int argc, char **argv)
{
    char *buf = malloc(1 << 16);
    (void)argc;
    mqd_t q = mq_open(argv[0], O_RDONLY | O_NONBLOCK);
    if (q < 0) return blk("mq_open");
    return mq_receive(q, buf, 1 << 16, NULL) < 0 ? blk("mq_receive") : esc("%s", buf);
}

/* filecap FILE (outside): gives a program CAP_SYS_ADMIN. */
static int a_filecap(int argc, char **argv)
{
    uint32_t d[5] = {0x02000001, 1 << 21, 0, 0, 0};
    (void)argc;
    if (setxattr(argv[0], "security.capability", d, sizeof d, 0)) return cant("file capability: %s", strerror(errno));
    return esc("file capability");
}

static int a_setuid(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    setresgid(0, 0, 0);
    if (setresuid(0, 0, 0)) return blk("setresuid(0)");
    int fd = open("/proc/self/status", O_RDONLY); /* 0 may be a mapped name for somebody else: what can it do? */
    close(fd);
    fd = open(argc > 0 ? argv[0] : "/etc/shadow", O_RDONLY);
    return verdict(fd >= 0, "root's own file after setresuid(0)");
}

static int a_capset(int argc, char **argv)
{
    struct { uint32_t v; int p; } h = {0x20080522, 0};
    uint32_t d[6] = {0};
    (void)argc;
    (void)argv;
    d[0] = d[1] = 1 << 21; /* CAP_SYS_ADMIN */
    return verdict(syscall(SYS_capset, &h, d) == 0, "capset CAP_SYS_ADMIN");
}

static int a_caps(int argc, char **argv)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    (void)argc;
    if (!f) return cant("/proc/self/status");
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, argv[0], strlen(argv[0])) && strspn(strchr(line, ':') + 1, "\t 0\n") != strlen(strchr(line, ':') + 1))
            return esc("%s", line);
    errno = EPERM;
    return blk(argv[0]);
}

static int a_nnp(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    errno = EPERM;
    return verdict(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0, "no_new_privs is not set");
}

static int a_groups(int argc, char **argv)
{
    gid_t g[64];
    int n = getgroups(64, g);
    (void)argc;
    for (int i = 0; i < n; i++)
        if (g[i] == (gid_t)atoi(argv[0])) return esc("still in group %s", argv[0]);
    int fd = open(argv[1], O_RDONLY);
    return fd < 0 ? blk("group file") : esc_read(fd, "group file");
}

/* Crashes in a directory it can write; the harness looks for a core file. */
static int a_core(int argc, char **argv)
{
    (void)argc;
    if (chdir(argv[0])) return cant("chdir: %s", strerror(errno));
    struct rlimit l;
    getrlimit(RLIMIT_CORE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_CORE, &l);
    prctl(PR_SET_DUMPABLE, 1);
    pid_t p = fork();
    if (p == 0) {
        signal(SIGSEGV, SIG_DFL);
        kill(getpid(), SIGSEGV);
        _exit(1);
    }
    if (p < 0) return cant("fork: %s", strerror(errno));
    int status;
    waitpid(p, &status, 0);
    errno = EPERM;
    return verdict(WCOREDUMP(status), "the kernel dumped core");
}

static int a_core_raise(int argc, char **argv)
{
    struct rlimit l = {1 << 20, 1 << 20};
    (void)argc;
    (void)argv;
    return verdict(setrlimit(RLIMIT_CORE, &l) == 0, "raised RLIMIT_CORE");
}

/* A limit of 0 does not stop a piped handler, only 1 does: so it must not be lowered from 1 either. */
static int a_core_zero(int argc, char **argv)
{
    struct rlimit l = {0, 0};
    (void)argc;
    (void)argv;
    prctl(PR_SET_DUMPABLE, 1);
    setrlimit(RLIMIT_CORE, &l);
    getrlimit(RLIMIT_CORE, &l);
    errno = EPERM;
    return verdict(l.rlim_cur != 1 && prctl(PR_GET_DUMPABLE) == 1, "a piped core handler would be started");
}

/* favoured WHAT: is ahead of everybody else because the caller was. */
static int a_favoured(int argc, char **argv)
{
    const char *what = argc > 0 ? argv[0] : "";
    errno = 0;
    if (!strcmp(what, "policy")) return verdict(sched_getscheduler(0) != SCHED_OTHER, "a real-time policy");
    if (!strcmp(what, "priority")) return verdict(getpriority(PRIO_PROCESS, 0) < 0, "a raised priority");
    return verdict(syscall(SYS_ioprio_get, 1, 0) >> 13 == 1, "real-time I/O");
}

const struct attack state_attacks[] = {
    {"fds", a_fds}, {"fd-climb", a_fd_climb}, {"reopen-std", a_reopen}, {"ftruncate", a_ftruncate},
    {"nonblock", a_nonblock}, {"environ", a_environ}, {"uname", a_uname}, {"file-holds", a_file_holds},
    {"netdevs", a_netdevs}, {"sigmask", a_sigmask}, {"sigign", a_sigign}, {"key-session", a_key_session},
    {"key-user", a_key_user}, {"key-request", a_key_request}, {"key-leave", a_key_leave},
    {"key-persistent", a_key_persistent}, {"proc-keys", a_proc_keys}, {"ipc-make", a_shm_make},
    {"ipc-remove", a_ipc_remove}, {"shm-read", a_shm_read}, {"msg-read", a_msg_read}, {"sem-write", a_sem_write},
    {"mq-read", a_mq_read}, {"filecap", a_filecap}, {"setuid", a_setuid}, {"capset", a_capset}, {"caps", a_caps}, {"nnp", a_nnp},
    {"groups", a_groups}, {"core", a_core}, {"core-raise", a_core_raise}, {"core-zero", a_core_zero}, {"favoured", a_favoured}, {0, 0}};

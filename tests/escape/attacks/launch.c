/* Stands outside: starts a command as another user, from a deliberately dirty caller, or before a naive pid 1.
 * Also the victim process that attacks aim at. Never run inside a sandbox. */
#include "attack.h"
#include <ftw.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <termios.h>

static void die(const char *what)
{
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    exit(21);
}

static int write_map(const char *file, unsigned in, unsigned out)
{
    char text[64];
    int fd = open(file, O_WRONLY), n = snprintf(text, sizeof text, "%u %u 1", in, out);
    if (fd < 0) return -1;
    int ok = write(fd, text, n) == n;
    close(fd);
    return ok ? 0 : -1;
}

static void private_mounts(int flags)
{
    unsigned u = getuid(), g = getgid();
    if (u) flags |= CLONE_NEWUSER;
    if (unshare(CLONE_NEWNS | flags)) die("unshare");
    if (u) {
        int fd = open("/proc/self/setgroups", O_WRONLY);
        if (fd < 0 || write(fd, "deny", 4) != 4) die("setgroups");
        close(fd);
        if (write_map("/proc/self/uid_map", u, u) || write_map("/proc/self/gid_map", g, g)) die("id map");
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) die("make mounts private");
}

/* Becomes pid 1 of a namespace the wrong way: forked, dumpable, with the caller's memory, variables and fds. */
static void naive_init(void)
{
    private_mounts(CLONE_NEWPID);
    pid_t first = fork();
    if (first < 0) die("fork");
    if (first) {
        int status;
        waitpid(first, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (mount("proc", "/proc", "proc", 0, NULL)) die("mount proc");
    struct { uint32_t version; int pid; } head = {0x20080522, 0};
    uint32_t none[6] = {0};
    if (getuid() && syscall(SYS_capset, &head, none)) die("capset");
    prctl(PR_SET_DUMPABLE, 1);
    pid_t payload = fork();
    if (payload < 0) die("fork");
    if (!payload) return;
    int status;
    while (waitpid(payload, &status, 0) != payload) {}
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* What the host sees changed afterwards, for the judge. */
static void saw(const char *what) { fprintf(stderr, "LAUNCHER SAW %s\n", what); }

/* Gives the command a pseudo-terminal as its controlling one; copies its output to our stdout. Looks afterwards whether
 * the terminal is as it was: its size, its modes, its foreground, nothing pushed into its input. */
static void with_pty(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) || unlockpt(master)) die("openpt");
    int slave = -1;
#ifdef TIOCGPTPEER
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
#endif
    if (slave < 0) die("pty peer");
    struct termios t;
    tcgetattr(slave, &t);
    t.c_oflag &= ~OPOST;
    t.c_lflag &= ~ECHO;
    tcsetattr(slave, TCSANOW, &t);
    struct winsize size, size_after;
    ioctl(slave, TIOCGWINSZ, &size);
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        setsid();
        if (ioctl(slave, TIOCSCTTY, 0)) die("TIOCSCTTY");
        dup2(slave, 0);
        dup2(slave, 1);
        dup2(slave, 2);
        if (slave > 2) close(slave);
        close(master);
        return;
    }
    struct termios after;
    char buf[4096];
    ssize_t n;
    int status, over = 0, pushed = 0;
    for (;;) { /* our own slave keeps the terminal there for the look afterwards, so no end of file comes */
        struct pollfd p = {master, POLLIN, 0};
        if (poll(&p, 1, over ? 0 : 5) > 0 && (p.revents & POLLIN)) {
            if ((n = read(master, buf, sizeof buf)) <= 0 || write(1, buf, n) != n) break;
        } else if (over) break;
        over = over || waitpid(child, &status, WNOHANG) == child;
    }
    ioctl(slave, TIOCGWINSZ, &size_after);
    tcgetattr(slave, &after);
    if (size.ws_row != size_after.ws_row || size.ws_col != size_after.ws_col) saw("window");
    if (t.c_iflag != after.c_iflag || t.c_oflag != after.c_oflag || t.c_lflag != after.c_lflag || t.c_cflag != after.c_cflag)
        saw("modes");
    after.c_lflag &= ~ICANON; /* what was pushed has no line end */
    tcsetattr(slave, TCSANOW, &after);
    if (ioctl(slave, FIONREAD, &pushed) == 0 && pushed > 0) saw("input");
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* All mounts that we see, to be freed. */
static char *mounts_now(void)
{
    size_t room = 1 << 16, held = 0;
    char *text = malloc(room);
    int fd = open("/proc/self/mountinfo", O_RDONLY);
    if (!text || fd < 0) die("mountinfo");
    for (ssize_t n; (n = read(fd, text + held, room - held - 1)) > 0;) {
        held += n;
        if (room - held < 4096 && !(text = realloc(text, room *= 2))) die("mountinfo");
    }
    close(fd);
    text[held] = 0;
    return text;
}

/* Whether there is a mount now that was not there before. One that is gone is somebody else's, whose directory was removed. */
static int more_mounts(const char *before)
{
    char *after = mounts_now(), *rest = after;
    int more = 0;
    for (char *line; (line = strsep(&rest, "\n")) && !more;) {
        size_t length = strlen(line);
        if (!length) continue;
        const char *at = before;
        while ((at = strstr(at, line)) && (at[length] != '\n' || (at != before && at[-1] != '\n'))) at++;
        more = !at;
        if (more) fprintf(stderr, "%s\n", line);
    }
    free(after);
    return more;
}

/* Mounts of our own that propagate to whoever copies them and back; says when one appears while the command runs. */
static void shared_mounts(void)
{
    private_mounts(0);
    if (mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL)) die("make mounts shared");
}

static int watch_mounts(char **argv)
{
    int status, changed = 0;
    char *before = mounts_now();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (!child) {
        execvp(*argv, argv);
        die(*argv);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        changed = changed || more_mounts(before);
        usleep(2000);
    }
    if (changed || more_mounts(before)) saw("mounts");
    free(before);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t killed[64];
static int kills, cgroups_left;

static int cgroup_of_a_killed(const char *path, const struct stat *st, int type, struct FTW *at)
{
    char mark[32];
    (void)st;
    if (type != FTW_D || strncmp(path + at->base, "cofferdam-", 10)) return 0;
    for (int i = 0; i < kills; i++) {
        snprintf(mark, sizeof mark, "-%d-", killed[i]);
        if (strstr(path + at->base, mark)) cgroups_left++;
    }
    return 0;
}

/* Runs the command again and again, each time killing it with SIGKILL a little later; then once to its end. Says what
 * is alive afterwards (we inherit every orphan), whether a mount is left, and whether a cgroup is. */
static int kill_sweep(char **argv)
{
    static const int after_ms[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 25, 28, 32, 36, 40, 50, 60, 80, 120};
    int status;
    char *before = mounts_now();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1)) die("subreaper");
    for (size_t i = 0; i <= sizeof after_ms / sizeof *after_ms; i++) {
        int last = i == sizeof after_ms / sizeof *after_ms;
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            execvp(*argv, argv);
            die(*argv);
        }
        if (!last) {
            usleep(after_ms[i] * 1000);
            if (waitpid(child, &status, WNOHANG) == child) continue;
            kill(child, SIGKILL);
            killed[kills++] = child;
        }
        if (waitpid(child, &status, 0) != child) die("waitpid");
    }
    pid_t orphan = 0;
    for (double since = now(); (orphan = waitpid(-1, NULL, WNOHANG)) >= 0 && now() - since < 2;)
        if (orphan == 0) usleep(2000);
    if (orphan >= 0) {
        char list[4096] = "", *at = list;
        int fd = open("/proc/thread-self/children", O_RDONLY);
        if (fd < 0 || read(fd, list, sizeof list - 1) < 0) die("children");
        saw("survivors");
        for (long pid; (pid = strtol(at, &at, 10)) > 0;) {
            char path[64], text[700] = "";
            snprintf(path, sizeof path, "/proc/%ld/status", pid);
            fd = open(path, O_RDONLY);
            if (fd < 0 || read(fd, text, sizeof text - 1) < 0) text[0] = 0;
            fprintf(stderr, "%s", text);
            kill(pid, SIGKILL);
        }
    }
    if (more_mounts(before)) saw("mounts");
    free(before);
    nftw("/sys/fs/cgroup", cgroup_of_a_killed, 16, FTW_PHYS);
    if (cgroups_left) saw("cgroups");
    int refused = WIFEXITED(status) && WEXITSTATUS(status) == 125;
    if (kills < 8 && !refused) return cant("only %d times the command was still there to be killed", kills);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether our output, a file, has the word that the attack begins with. */
static int started(void)
{
    char text[4096];
    int fd = open("/proc/self/fd/1", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0) close(fd);
    return n > 0 && memmem(text, n, "STARTED", 7);
}

int launch(int argc, char **argv)
{
    int i = 0, uid = -1, naive = 0, mounts = 0, kill_after = 0, pty = 0, block = 0, ignore = 0, sig = 0;
    int ngroups = 0, sweep = 0, shared = 0;
    gid_t groups[8];
    const char *session_key = NULL, *user_key = NULL;
    for (; i < argc && strcmp(argv[i], "--"); i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(o, "--uid")) uid = atoi(v), i++;
        else if (!strcmp(o, "--group")) groups[ngroups++ & 7] = atoi(v), i++;
        else if (!strcmp(o, "--fd")) {
            int want = atoi(v), fd = open(strchr(v, ':') + 1, O_RDONLY);
            if (fd < 0) die(v);
            if (fd != want && (dup2(fd, want) < 0 || close(fd))) die("dup2");
            i++;
        } else if (!strcmp(o, "--env")) putenv(argv[++i]);
        else if (!strcmp(o, "--session-key")) session_key = v, i++;
        else if (!strcmp(o, "--user-key")) user_key = v, i++;
        else if (!strcmp(o, "--private-mounts")) mounts = 1;
        else if (!strcmp(o, "--naive-init")) naive = 1;
        else if (!strcmp(o, "--pty")) pty = 1;
        else if (!strcmp(o, "--kill-after")) kill_after = atoi(v), i++;
        else if (!strcmp(o, "--kill-sweep")) sweep = 1;
        else if (!strcmp(o, "--shared-mounts")) shared = 1;
        else if (!strcmp(o, "--real-time")) {
            struct sched_param p = {.sched_priority = 1};
            if (sched_setscheduler(0, SCHED_RR, &p)) die("SCHED_RR");
        } else if (!strcmp(o, "--priority")) {
            if (setpriority(PRIO_PROCESS, 0, -5)) die("setpriority");
        } else if (!strcmp(o, "--io-real-time")) {
            if (syscall(SYS_ioprio_set, 1, 0, 1 << 13 | 7)) die("ioprio_set");
        } else if (!strcmp(o, "--block-signals")) block = 1;
        else if (!strcmp(o, "--ignore-signals")) ignore = 1;
        else if (!strcmp(o, "--signal-group")) sig = 1;
        else if (!strcmp(o, "--core")) {
            struct rlimit l;
            getrlimit(RLIMIT_CORE, &l);
            l.rlim_cur = l.rlim_max;
            setrlimit(RLIMIT_CORE, &l);
        } else {
            fprintf(stderr, "launch: what is %s?\n", o);
            return 21;
        }
    }
    if (++i >= argc) return 21;
    /* Whether a mount is left is counted: those that others on this machine make meanwhile are not to be among them. */
    if (shared || (sweep && getuid() == 0)) shared_mounts();
    if (getuid() == 0 && setgroups(ngroups, groups)) die("setgroups");
    if (uid >= 0 && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))) die("setuid");
    prctl(PR_SET_DUMPABLE, 1); /* the change of user took it, and with it our own /proc entry */
    if (sig) {
        setsid();
        pid_t bystander = fork();
        if (!bystander) {
            alarm(30);
            for (;;) pause();
        }
        int status;
        signal(SIGUSR1, SIG_IGN); /* before anybody can send it; the child takes it back */
        pid_t child = fork();
        if (!child) signal(SIGUSR1, SIG_DFL);
        if (child) {
            waitpid(child, &status, 0);
            usleep(50000);
            int dead = waitpid(bystander, NULL, WNOHANG) == bystander;
            if (!dead) kill(bystander, SIGKILL), waitpid(bystander, NULL, 0);
            fprintf(stderr, "BYSTANDER %s\n", dead ? "DEAD" : "alive");
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
    if (kill_after) {
        pid_t child = fork();
        if (child) {
            int status, over = 0;
            /* From when the program says that it runs: how long that takes is up to machine and maker. */
            for (double since = now(); !over && !started() && now() - since < 12; usleep(5000))
                over = waitpid(child, &status, WNOHANG) == child;
            if (!over) usleep(kill_after * 1000);
            if (over || waitpid(child, &status, WNOHANG) == child)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            usleep(100000);
            return 0;
        }
    }
    if (session_key || user_key) {
        if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0) die("join session keyring");
        if (session_key && syscall(SYS_add_key, "user", "cofferdam-victim", session_key, strlen(session_key),
                                   KEY_SPEC_SESSION_KEYRING) < 0) die("add session key");
        /* possessed by way of the session, so that its permissions may be changed */
        if (user_key && syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING)) die("link keyring");
        if (user_key && syscall(SYS_add_key, "user", user_key, user_key, strlen(user_key), KEY_SPEC_USER_KEYRING) < 0)
            die("add user key");
        if (user_key) { /* readable by the owner even without possession, and gone by itself */
            long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", user_key, 0);
            syscall(SYS_keyctl, KEYCTL_SETPERM, key, 0x3f3f0000);
            syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, key, 60);
        }
    }
    if (ignore)
        for (int s = 1; s < 32; s++)
            if (s != SIGCHLD && s != SIGKILL && s != SIGSTOP) signal(s, SIG_IGN);
    if (block) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
    }
    if (mounts) private_mounts(0);
    if (naive) naive_init();
    if (pty) with_pty();
    if (sweep) return kill_sweep(argv + i);
    if (shared) return watch_mounts(argv + i);
    execvp(argv[i], argv + i);
    die(argv[i]);
    return 21;
}

static char secret[256];

/* victim SECRET FILE: holds SECRET in memory, in a variable and behind fd 9; any signal ends it. */
int victim(int argc, char **argv)
{
    if (argc < 2) return 20;
    alarm(60);
    snprintf(secret, sizeof secret, "%s", argv[0]);
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || dup2(fd, 9) != 9) return cant("victim file: %s", strerror(errno));
    prctl(PR_SET_DUMPABLE, 1);
    printf("READY %d %lx\n", getpid(), (unsigned long)secret);
    fflush(stdout);
    for (;;) pause();
}

/* peer SECONDS: stays for a while, for daemons that must be found dead. */
int peer(int argc, char **argv)
{
    alarm(argc > 0 ? atoi(argv[0]) : 10);
    for (;;) pause();
}

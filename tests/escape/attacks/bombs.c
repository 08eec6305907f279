/* Bombs, each bounded in itself: a count, its own watchdog, and an end after which it says that nothing stopped it.
 * Also what tries to outlive the run. */
#include "attack.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>

/* fork N: that many children at once, all of which end by themselves. */
static int a_fork(int argc, char **argv)
{
    int want = atoi(argv[0]), made = 0, e = 0;
    pid_t *kids = calloc(want, sizeof *kids);
    (void)argc;
    for (; made < want; made++) {
        kids[made] = fork();
        if (kids[made] == 0) {
            alarm(8);
            for (;;) pause();
        }
        if (kids[made] < 0) {
            e = errno;
            break;
        }
    }
    for (int i = 0; i < made; i++) kill(kids[i], SIGKILL), waitpid(kids[i], NULL, 0);
    errno = e;
    if (made == want) return esc("%d processes at once", made);
    return blk("fork");
}

static void *sleeper(void *x)
{
    usleep(1500000);
    return x;
}

static int a_threads(int argc, char **argv)
{
    int want = atoi(argv[0]), made = 0, e = 0;
    pthread_attr_t a;
    (void)argc;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    for (; made < want; made++) {
        pthread_t t;
        if ((e = pthread_create(&t, &a, sleeper, NULL))) break;
        pthread_detach(t);
    }
    errno = e;
    if (made == want) return esc("%d threads at once", made);
    return blk("pthread_create");
}

static int touch(size_t mb, int flags, int fd)
{
    for (size_t i = 0; i < mb; i++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : (off_t)i << 20);
        if (p == MAP_FAILED) return -1;
        for (int o = 0; o < 1 << 20; o += 4096) p[o] = 1;
    }
    return 0;
}

static int a_memory(int argc, char **argv)
{
    (void)argc;
    if (touch(atoi(argv[0]), MAP_PRIVATE | MAP_ANONYMOUS, -1)) return blk("mmap");
    return esc("%s MiB touched", argv[0]);
}

static int a_shared_memory(int argc, char **argv)
{
    (void)argc;
    if (touch(atoi(argv[0]), MAP_SHARED | MAP_ANONYMOUS, -1)) return blk("mmap");
    return esc("%s MiB touched", argv[0]);
}

static int a_memfd(int argc, char **argv)
{
    int fd = syscall(SYS_memfd_create, "bomb", 1);
    (void)argc;
    if (fd < 0) return blk("memfd_create");
    if (ftruncate(fd, (off_t)atoi(argv[0]) << 20)) return blk("ftruncate");
    if (touch(atoi(argv[0]), MAP_SHARED, fd)) return blk("mmap");
    return esc("%s MiB in a memfd", argv[0]);
}

/* memory-tree CHILDREN MB: each below any limit per process, together above that of the tree. */
static int a_memory_tree(int argc, char **argv)
{
    int kids = atoi(argv[0]), fine = 0;
    (void)argc;
    for (int i = 0; i < kids; i++) {
        pid_t p = fork();
        if (p == 0) {
            alarm(8);
            if (touch(atoi(argv[1]), MAP_PRIVATE | MAP_ANONYMOUS, -1)) _exit(1);
            usleep(1500000);
            _exit(0);
        }
    }
    int status;
    while (wait(&status) > 0) fine += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    errno = ENOMEM;
    return verdict(fine == kids, "memory over many processes");
}

/* What was queued is there for longer than a supervisor may need to see it. */
static int queued(size_t bytes, size_t want, const char *what)
{
    if (bytes < want) {
        errno = ENOBUFS;
        return blk(what);
    }
    usleep(1500000);
    return esc("%zu MiB in %s", bytes >> 20, what);
}

static void widen(int s)
{
    int size = 64 << 20;
    setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

/* netlink-queue MB: replies of the kernel's that nobody reads. Counted by what the kernel takes for them at the least. */
static int a_netlink(int argc, char **argv)
{
    size_t want = (size_t)atoi(argv[0]) << 20, bytes = 0;
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
    } ask = {.h = {.nlmsg_len = sizeof ask, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST}, .i = {.ifi_index = 1}};
    (void)argc;
    for (int n = 0; n < 400 && bytes < want; n++) {
        struct sockaddr_nl a = {.nl_family = AF_NETLINK};
        int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        if (s < 0) return blk("netlink socket");
        if (bind(s, (void *)&a, sizeof a)) return blk("bind of a netlink socket");
        widen(s);
        int size = 0;
        socklen_t len = sizeof size;
        getsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, &len);
        /* Each reply takes 768 bytes or more of the receive buffer; what is beyond it is dropped. */
        for (int k = 0; k < size / 768; k++)
            if (send(s, &ask, sizeof ask, 0) < 0) break;
        bytes += size;
    }
    return queued(bytes, want, "replies of netlink");
}

static int listener(struct sockaddr_in *a)
{
    socklen_t n = sizeof *a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (s < 0) return -1;
    widen(s);
    if (bind(s, (void *)a, n) || listen(s, 1000) || getsockname(s, (void *)a, &n)) return -1;
    return s;
}

static void reset(int c)
{
    struct linger now = {.l_onoff = 1};
    setsockopt(c, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(c);
}

/* tcp-queue MB accept|leave|reset: bytes that nobody reads, in connections that are accepted, or are not, or are reset by
   their other end before they are. */
static int a_tcp_queue(int argc, char **argv)
{
    static char block[65536];
    struct sockaddr_in a;
    size_t want = (size_t)atoi(argv[0]) << 20, bytes = 0;
    int accepts = argc > 1 && !strcmp(argv[1], "accept"), resets = argc > 1 && !strcmp(argv[1], "reset"), l = listener(&a);
    if (l < 0) return blk("listen");
    for (int n = 0; n < 900 && bytes < want; n++) {
        int c = socket(AF_INET, SOCK_STREAM, 0), s = -1, sent = 0;
        if (c < 0) return blk("socket");
        widen(c);
        if (connect(c, (void *)&a, sizeof a)) return blk("connect");
        if (accepts && (s = accept(l, NULL, NULL)) < 0) return blk("accept");
        if (resets && ioctl(c, SIOCOUTQ, &sent)) {
            /* gVisor does not say what is on its way: so little arrives in a moment. */
            for (int k = 0; k < 4; k++) {
                ssize_t n = send(c, block, sizeof block, 0);
                if (n > 0) bytes += n;
            }
            usleep(5000);
            reset(c);
            continue;
        }
        for (int end = 0; end < (accepts ? 2 : 1); end++) {
            int f = end ? s : c, dry = 0;
            fcntl(f, F_SETFL, O_NONBLOCK);
            while (bytes < want && dry < 3) {
                ssize_t n = send(f, block, sizeof block, 0);
                if (n > 0) bytes += n, dry = 0;
                else dry++, usleep(1000);
            }
        }
        if (resets) {
            /* What was not received yet ends with the connection. */
            if (ioctl(c, SIOCOUTQ, &sent)) return cant("SIOCOUTQ: %s", strerror(errno));
            bytes -= sent;
            reset(c);
        }
    }
    return queued(bytes, want, "queues of TCP");
}

/* Sends to a socket of this process until it holds what it can. */
static void fill(int s, struct sockaddr_in *a)
{
    static char block[60000];
    for (int k = 0; k < 60; k++) sendto(s, block, sizeof block, 0, (void *)a, sizeof *a);
}

static size_t drain(int s)
{
    static char block[60000];
    size_t bytes = 0;
    ssize_t got;
    while ((got = recv(s, block, sizeof block, MSG_DONTWAIT)) > 0) bytes += got;
    return bytes;
}

/* udp-queue MB [disconnect]: datagrams that nobody reads, in sockets that lose their address afterwards if so asked. A datagram that was dropped is not counted: the kernel says what a socket holds, and
   where it does not (gVisor), the first socket's are read, and all of them at the end. */
static int a_udp_queue(int argc, char **argv)
{
    static int unread[800];
    int unreads = 0;
    size_t want = (size_t)atoi(argv[0]) << 20, bytes = 0, each = 0;
    int disconnects = argc > 1 && !strcmp(argv[1], "disconnect"), peer = -1;
    struct sockaddr_in other;
    for (int n = 0; n < 800 && bytes < want; n++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof a;
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (s < 0) return blk("socket");
        widen(s);
        unsigned figures[9] = {0};
        if (disconnects) {
            /* The port that connect(2) gave goes with the connection, and the socket with it from every list. */
            struct sockaddr none = {.sa_family = AF_UNSPEC};
            if (n == 0) {
                peer = s;
                if (bind(s, (void *)&a, len) || getsockname(s, (void *)&other, &len)) return blk("bind");
                continue;
            }
            if (connect(s, (void *)&other, len) || getsockname(s, (void *)&a, &len)) return blk("connect");
            fill(peer, &a);
            len = sizeof figures;
            if (!getsockopt(s, SOL_SOCKET, 55, figures, &len)) each = figures[0];
            else if (errno != ENOPROTOOPT) return cant("SO_MEMINFO: %s", strerror(errno));
            else if (each == 0) {
                each = drain(s);
                fill(peer, &a);
            }
            bytes += each;
            if (connect(s, &none, sizeof none)) return blk("connect to no address");
            continue;
        }
        if (bind(s, (void *)&a, len) || getsockname(s, (void *)&a, &len)) return blk("bind");
        fill(s, &a);
        len = sizeof figures;
        if (!getsockopt(s, SOL_SOCKET, 55, figures, &len)) {
            bytes += figures[0];
            continue;
        }
        if (errno != ENOPROTOOPT) return cant("SO_MEMINFO: %s", strerror(errno));
        if (unreads == 0) {
            each = drain(s);
            fill(s, &a);
        }
        unread[unreads++] = s;
        bytes += each;
    }
    if (unreads > 0) bytes = 0;
    for (int n = 0; n < unreads; n++) bytes += drain(unread[n]);
    return queued(bytes, want, "queues of UDP");
}

/* huge-pages HOW: from the host's pool, by mmap, a memfd or a segment. */
static int a_huge(int argc, char **argv)
{
    size_t size = 4 << 20;
    char *p = MAP_FAILED;
    (void)argc;
    if (!strcmp(argv[0], "mmap"))
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (!strcmp(argv[0], "memfd")) {
        int fd = syscall(SYS_memfd_create, "huge", 4);
        if (fd >= 0 && ftruncate(fd, size) == 0) p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (!strcmp(argv[0], "shm")) {
        int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600 | 04000);
        if (id >= 0) p = shmat(id, NULL, 0), shmctl(id, IPC_RMID, NULL);
    }
    if (!strcmp(argv[0], "ordinary")) p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || p == NULL) return blk("huge pages");
    p[0] = 1;
    return esc("4 MiB: %s", argv[0]);
}

/* socket-filter: a program in kernel memory. With an argument, another option of the same call. */
static int a_filter(int argc, char **argv)
{
    struct sock_filter all[] = {{0x06, 0, 0, 0xffffffff}};
    struct sock_fprog program = {1, all};
    int pair[2], one = 1;
    (void)argv;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return cant("socketpair: %s", strerror(errno));
    int done = argc > 0 ? setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one)
                        : setsockopt(pair[0], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    return verdict(done == 0, "option of a socket");
}

/* aio N: that many contexts of asynchronous I/O. */
static int a_aio(int argc, char **argv)
{
    (void)argc;
    for (int i = 0; i < atoi(argv[0]); i++) {
        aio_context_t context = 0;
        if (syscall(SYS_io_setup, 8, &context)) return blk("io_setup");
    }
    return esc("%s contexts", argv[0]);
}

/* fill FILE MB: writes that much. */
static int a_fill(int argc, char **argv)
{
    static char mb[1 << 20];
    int fd = open(argv[0], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    (void)argc;
    signal(SIGXFSZ, SIG_IGN);
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    for (int i = 0; i < atoi(argv[1]); i++)
        for (size_t o = 0; o < sizeof mb;) {
            ssize_t n = write(fd, mb + o, sizeof mb - o);
            if (n <= 0) return blk("write");
            o += n;
        }
    return esc("%s MiB written", argv[1]);
}

static int a_fallocate(int argc, char **argv)
{
    int fd = open(argv[0], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    (void)argc;
    signal(SIGXFSZ, SIG_IGN);
    if (fd < 0) return cant("%s: %s", argv[0], strerror(errno));
    return verdict(fallocate(fd, 0, 0, (off_t)atoi(argv[1]) << 20) == 0, "fallocate");
}

/* inodes DIR N */
static int a_inodes(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    for (int i = 0; i < atoi(argv[1]); i++) {
        snprintf(path, sizeof path, "%s/n%d", argv[0], i);
        int fd = open(path, O_WRONLY | O_CREAT, 0644);
        if (fd < 0) return i ? blk("create") : cant("%s: %s", path, strerror(errno));
        close(fd);
    }
    return esc("%s files", argv[1]);
}

static int a_fdbomb(int argc, char **argv)
{
    int want = atoi(argv[0]);
    struct rlimit l;
    (void)argc;
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    for (int i = 0; i < want; i++)
        if (dup(0) < 0) return blk("dup");
    return esc("%d descriptors", want);
}

static int a_output(int argc, char **argv)
{
    static char block[65536];
    int fd = atoi(argv[0]);
    (void)argc;
    memset(block, 'A', sizeof block);
    for (int i = 0; i < atoi(argv[1]) * 16; i++)
        if (write(fd, block, sizeof block) < 0) return blk("write");
    return 0;
}

static double cpu(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* cpu MS: that much CPU time, ignoring what may be ignored. */
static int a_cpu(int argc, char **argv)
{
    (void)argc;
    signal(SIGXCPU, SIG_IGN);
    signal(SIGPROF, SIG_IGN);
    while (cpu(RUSAGE_SELF) * 1000 < atoi(argv[0])) {}
    return esc("%s ms of CPU", argv[0]);
}

/* cpu-tree CHILDREN MS: a chain of short-lived children, none of which is over any limit of its own. */
static int a_cpu_tree(int argc, char **argv)
{
    (void)argc;
    for (int i = 0; i < atoi(argv[0]); i++) {
        pid_t p = fork();
        if (p == 0) {
            while (cpu(RUSAGE_SELF) * 1000 < atoi(argv[1])) {}
            _exit(0);
        }
        if (p < 0) return blk("fork");
        waitpid(p, NULL, 0);
    }
    return esc("%s children with %s ms each", argv[0], argv[1]);
}

/* cpu-share MS PERCENT: over so much wall time, more than the share. */
static int a_cpu_share(int argc, char **argv)
{
    double t = now(), c = cpu(RUSAGE_SELF);
    (void)argc;
    while ((now() - t) * 1000 < atoi(argv[0])) {}
    double percent = (cpu(RUSAGE_SELF) - c) / (now() - t) * 100;
    errno = EAGAIN;
    if (percent > atoi(argv[1])) return esc("%.0f %% of a CPU", percent);
    return blk("share");
}

static int a_wall(int argc, char **argv)
{
    (void)argc;
    for (int s = 1; s < 32; s++) signal(s, SIG_IGN);
    signal(SIGALRM, SIG_DFL);
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    sigprocmask(SIG_BLOCK, &all, NULL);
    usleep(atoi(argv[0]) * 1000);
    return esc("%s ms", argv[0]);
}

static int a_stop(int argc, char **argv)
{
    double t = now();
    (void)argc;
    if (!strcmp(argv[0], "0")) return esc("did not stop");
    kill(getpid(), SIGSTOP);
    usleep(100000);
    return esc("continued after %.1f s", now() - t);
}

/* refused N: as many refused calls. */
static int a_flood(int argc, char **argv)
{
    (void)argc;
    for (int i = 0; i < atoi(argv[0]); i++) {
        syscall(SYS_mount, "a", "b", "c", 0, NULL);
        syscall(SYS_bpf, i, NULL, 0);
        open("/etc/shadow", O_WRONLY);
    }
    return 0;
}

/* daemon MARKER HOW: a grandchild that leaves session, parent and group; HOW adds stubbornness. */
static int a_daemon(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "";
    printf("STARTED\n");
    fflush(stdout);
    pid_t p = fork();
    if (p < 0) return blk("fork");
    if (p) {
        waitpid(p, NULL, 0);
        usleep(!strcmp(how, "linger") ? 5000000 : 150000);
        return esc("left a daemon");
    }
    setsid();
    p = fork();
    if (p) _exit(0);
    prctl(PR_SET_PDEATHSIG, 0);
    int keep = !strcmp(how, "hold");
    if (!keep)
        for (int i = 0; i < 3; i++) {
            close(i);
            open("/dev/null", O_RDWR);
        }
    if (!strcmp(how, "ignore"))
        for (int s = 1; s < 32; s++) signal(s, SIG_IGN);
    if (!strcmp(how, "stop")) {
        pid_t q = fork();
        if (q == 0) { /* exec first: the marker must be seen in the stopped process */
            char *a[] = {argv[0], "peer", "12", argv[1], NULL};
            kill(getpid(), SIGSTOP);
            execv(argv[0], a);
        }
        usleep(100000);
    }
    if (!strcmp(how, "churn")) { /* a new pid every few milliseconds, each outliving its parent */
        for (double t = now(); now() - t < 4;) {
            if (fork() > 0) _exit(0);
            setsid();
            usleep(2000);
        }
    }
    char *a[] = {argv[0], "peer", "12", argv[1], NULL};
    execv(argv[0], a);
    _exit(1);
}

const struct attack bombs_attacks[] = {
    {"fork-bomb", a_fork}, {"thread-bomb", a_threads}, {"memory", a_memory}, {"shared-memory", a_shared_memory},
    {"memfd", a_memfd}, {"memory-tree", a_memory_tree}, {"fill", a_fill}, {"fallocate", a_fallocate},
    {"inodes", a_inodes}, {"fd-bomb", a_fdbomb}, {"output", a_output}, {"cpu", a_cpu}, {"cpu-tree", a_cpu_tree},
    {"cpu-share", a_cpu_share}, {"wall", a_wall}, {"stop-self", a_stop}, {"event-flood", a_flood},
    {"daemon", a_daemon}, {"netlink-queue", a_netlink}, {"tcp-queue", a_tcp_queue}, {"udp-queue", a_udp_queue},
    {"huge-pages", a_huge}, {"socket-filter", a_filter}, {"aio", a_aio}, {0, 0}};

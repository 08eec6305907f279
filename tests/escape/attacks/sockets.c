/* Sockets: by path, abstract, of foreign families, over the network, and descriptors handed across. */
#include "attack.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TOKEN "cofferdam-was-here\n"
#define AF_VSOCK_ 40

static socklen_t unix_addr(struct sockaddr_un *a, const char *name)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    strncpy(a->sun_path, name, sizeof a->sun_path - 1);
    socklen_t n = offsetof(struct sockaddr_un, sun_path) + strlen(name);
    if (name[0] == '@') {
        a->sun_path[0] = 0;
        return n;
    }
    return n + 1;
}

static int unix_connect(const char *name, int type)
{
    struct sockaddr_un a;
    socklen_t n = unix_addr(&a, name);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (connect(fd, (void *)&a, n)) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

static int send_token(int fd, const char *what)
{
    if (fd < 0) return blk(what);
    return verdict(send(fd, TOKEN, strlen(TOKEN), MSG_NOSIGNAL) > 0, what);
}

static int a_unix(int argc, char **argv)
{
    (void)argc;
    return send_token(unix_connect(argv[0], SOCK_STREAM), argv[0]);
}

static int a_unix_dgram(int argc, char **argv)
{
    (void)argc;
    return send_token(unix_connect(argv[0], SOCK_DGRAM), argv[0]);
}

/* The kind of the pair: a third argument, high bits and all, or a datagram pair. */
static int pair_kind(int argc, char **argv) { return argc > 1 ? (int)strtoul(argv[1], NULL, 0) : SOCK_DGRAM; }

/* A pair is no way out only when it stays one: re-address one end. */
static int a_pair_sendto(int argc, char **argv)
{
    int p[2];
    struct sockaddr_un a;
    socklen_t n = unix_addr(&a, argv[0]);
    if (socketpair(AF_UNIX, pair_kind(argc, argv), 0, p)) return blk("socketpair");
    return verdict(sendto(p[0], TOKEN, strlen(TOKEN), MSG_NOSIGNAL, (void *)&a, n) > 0, "sendto from a socketpair");
}

static int a_pair_connect(int argc, char **argv)
{
    int p[2];
    struct sockaddr_un a;
    socklen_t n = unix_addr(&a, argv[0]);
    if (socketpair(AF_UNIX, pair_kind(argc, argv), 0, p)) return blk("socketpair");
    if (connect(p[0], (void *)&a, n)) return blk("connect of a socketpair");
    return send_token(p[0], "connect of a socketpair");
}

static int a_pair_sendmsg(int argc, char **argv)
{
    int p[2];
    struct sockaddr_un a;
    struct iovec v = {TOKEN, strlen(TOKEN)};
    struct msghdr m = {.msg_name = &a, .msg_iov = &v, .msg_iovlen = 1};
    m.msg_namelen = unix_addr(&a, argv[0]);
    if (socketpair(AF_UNIX, pair_kind(argc, argv), 0, p)) return blk("socketpair");
    struct mmsghdr mm = {.msg_hdr = m};
    return verdict(sendmmsg(p[0], &mm, 1, MSG_NOSIGNAL) == 1, "sendmmsg from a socketpair");
}

/* Lets go of the peer of a stream pair, as far as the kernel can, and connects elsewhere. */
static int a_pair_reconnect(int argc, char **argv)
{
    int p[2];
    struct sockaddr_un a;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    socklen_t n = unix_addr(&a, argv[0]);
    (void)argc;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, p)) return cant("socketpair: %s", strerror(errno));
    close(p[1]);
    shutdown(p[0], SHUT_RDWR);
    connect(p[0], &none, sizeof none);
    if (connect(p[0], (void *)&a, n) && sendto(p[0], TOKEN, strlen(TOKEN), MSG_NOSIGNAL, (void *)&a, n) < 0)
        return blk("connect of a stream pair");
    return send_token(p[0], "connect of a stream pair");
}

/* A byte through a pair of streams and one of packets. */
static int a_pair_echo(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int kind = SOCK_STREAM; kind <= SOCK_SEQPACKET; kind += SOCK_SEQPACKET - SOCK_STREAM) {
        int p[2];
        char c = 0;
        if (socketpair(AF_UNIX, kind, 0, p)) return blk("socketpair");
        if (write(p[0], "x", 1) != 1 || read(p[1], &c, 1) != 1 || c != 'x') return blk("a byte through a pair");
    }
    return esc("both kinds of pair carry bytes");
}

/* Puts descriptor 9's file, or /etc/hostname, through SCM_RIGHTS to whoever listens. */
static int a_scm_send(int argc, char **argv)
{
    int fd = -1, file = open(argv[1], O_RDONLY);
    (void)argc;
    if (file < 0) return cant("%s: %s", argv[1], strerror(errno));
    for (int i = 0; i < 60 && fd < 0; i++) {
        fd = unix_connect(argv[0], SOCK_STREAM);
        if (fd < 0 && errno != ENOENT && errno != ECONNREFUSED) break;
        if (fd < 0) usleep(50000);
    }
    if (fd < 0) return blk("connect to the other sandbox");
    char c = 'x', ctl[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &file, sizeof file);
    return verdict(sendmsg(fd, &m, MSG_NOSIGNAL) == 1, "descriptor handed over");
}

/* The other sandbox: waits for a descriptor, shows what is behind it. Its failure to listen is a block too. */
static int a_scm_receive(int argc, char **argv)
{
    struct sockaddr_un a;
    socklen_t n = unix_addr(&a, argv[0]);
    (void)argc;
    int l = socket(AF_UNIX, SOCK_STREAM, 0);
    if (l < 0) return blk("socket");
    if (bind(l, (void *)&a, n) || listen(l, 1)) return blk("bind");
    struct timeval t = {3, 0};
    setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    int c = accept(l, NULL, NULL);
    if (c < 0) return blk("nobody came");
    char x, ctl[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&x, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl};
    if (recvmsg(c, &m, 0) != 1 || !CMSG_FIRSTHDR(&m)) return blk("no descriptor");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return esc_read(fd, "received");
}

/* socket DOMAIN TYPE PROTO: whether such a socket can be had; domain may have high bits, as 0x... */
static int a_socket(int argc, char **argv)
{
    (void)argc;
    long fd = syscall(SYS_socket, strtoul(argv[0], NULL, 0), strtoul(argv[1], NULL, 0), strtoul(argv[2], NULL, 0));
    return verdict(fd >= 0, "socket");
}

static int a_vsock_bind(int argc, char **argv)
{
    struct { unsigned short family, reserved; unsigned port, cid; unsigned char flags, zero[3]; } a = {AF_VSOCK_, 0, -1U, -1U, 0, {0}};
    (void)argc;
    (void)argv;
    int fd = socket(AF_VSOCK_, SOCK_STREAM, 0);
    if (fd < 0) return blk("vsock");
    return verdict(bind(fd, (void *)&a, sizeof a) == 0 && listen(fd, 1) == 0, "vsock bind");
}

static struct sockaddr_in v4(const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static int a_tcp(int argc, char **argv)
{
    struct sockaddr_in a = v4(argv[0]);
    int fd = socket(AF_INET, SOCK_STREAM, argc > 1 ? atoi(argv[1]) : 0);
    if (fd < 0) return blk("socket");
    if (connect(fd, (void *)&a, sizeof a)) return blk("connect");
    return send_token(fd, "tcp");
}

static int a_tcp6(int argc, char **argv)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[0]))};
    (void)argc;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr);
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    if (fd < 0) return blk("socket");
    if (connect(fd, (void *)&a, sizeof a)) return blk("connect");
    return send_token(fd, "tcp over a mapped address");
}

static int a_fastopen(int argc, char **argv)
{
    struct sockaddr_in a = v4(argv[0]);
    (void)argc;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return blk("socket");
    return verdict(sendto(fd, TOKEN, strlen(TOKEN), 0x20000000 | MSG_NOSIGNAL, (void *)&a, sizeof a) > 0, "MSG_FASTOPEN");
}

static int a_udp(int argc, char **argv)
{
    struct sockaddr_in a = v4(argv[0]);
    (void)argc;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0) return blk("socket");
    return verdict(sendto(fd, TOKEN, strlen(TOKEN), 0, (void *)&a, sizeof a) > 0, "udp");
}

/* Listens where the host could come: counts when somebody did. */
static int a_listen(int argc, char **argv)
{
    struct sockaddr_in a = v4(argv[0]);
    int one = 1;
    (void)argc;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return blk("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&a, sizeof a) || listen(fd, 1)) return blk("bind");
    /* Not SO_RCVTIMEO, which gVisor's accept knows nothing of. */
    struct pollfd p = {fd, POLLIN, 0};
    int c = poll(&p, 1, 2000) > 0 ? accept(fd, NULL, NULL) : -1;
    return c < 0 ? blk("nobody could reach it") : send_token(c, "the host connected in");
}

const struct attack sockets_attacks[] = {
    {"unix", a_unix}, {"unix-dgram", a_unix_dgram}, {"pair-sendto", a_pair_sendto}, {"pair-connect", a_pair_connect},
    {"pair-sendmmsg", a_pair_sendmsg}, {"pair-reconnect", a_pair_reconnect}, {"pair-echo", a_pair_echo}, {"scm-send", a_scm_send}, {"scm-receive", a_scm_receive}, {"socket", a_socket},
    {"vsock-bind", a_vsock_bind}, {"tcp", a_tcp}, {"tcp6", a_tcp6}, {"fastopen", a_fastopen}, {"udp", a_udp},
    {"listen", a_listen}, {0, 0}};

/* What tests run in a container made of nothing but busybox: one small thing each, told in one line. Not part of the
 * product. Exit 0: it could be done. Exit 10: it was refused. Exit 20: it could not be tried. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int refused(const char *what)
{
    printf("refused %s: %s\n", what, strerror(errno));
    return 10;
}

static int done(const char *what)
{
    printf("done %s\n", what);
    return 0;
}

static void *add(void *count)
{
    __atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int threads(int n)
{
    static int count;
    pthread_t all[256];
    for (int i = 0; i < n && i < 256; i++)
        if ((errno = pthread_create(&all[i], NULL, add, &count))) return refused("a thread");
    for (int i = 0; i < n && i < 256; i++) pthread_join(all[i], NULL);
    printf("%d threads\n", count);
    return 0;
}

/* Children that all live at the same time. */
static int children(int n)
{
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child < 0) {
            printf("%d children, then %s\n", i, strerror(errno));
            return 10;
        }
        if (child == 0) {
            sleep(20);
            _exit(0);
        }
    }
    printf("%d children\n", n);
    return 0;
}

static int hog(long mib)
{
    char *memory = malloc(mib << 20);
    if (!memory) return refused("memory");
    for (long i = 0; i < mib << 20; i += 4096) memory[i] = 1;
    printf("%ld MiB\n", mib);
    return memory[4096] == 1 ? 0 : 20;
}

/* Files without contents in /tmp. */
static int empty(long n)
{
    char path[64];
    for (long i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/tmp/empty%ld", i);
        if (mknod(path, S_IFREG | 0600, 0)) return refused("a file");
    }
    printf("%ld files\n", n);
    return 0;
}

static int burn(double seconds)
{
    while ((double)clock() / CLOCKS_PER_SEC < seconds) {}
    return done("burning");
}

static int reach(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {3, 0};
    inet_pton(AF_INET, address, &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) return refused("a socket");
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(s, (struct sockaddr *)&to, sizeof to)) return refused("a connection");
    char text[512];
    int n = snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n", address, port);
    if (write(s, text, n) != n) return refused("a request");
    /* An answer of several parts, in one line. */
    n = 0;
    for (ssize_t more; n < 500 && (more = read(s, text + n, 500 - n)) > 0;) n += more;
    if (n == 0) return refused("an answer");
    text[n] = 0;
    for (int i = 0; i < n; i++)
        if (text[i] == '\r' || text[i] == '\n') text[i] = ' ';
    printf("reached %s\n", text);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *first = argc > 2 ? argv[2] : "1", *second = argc > 3 ? argv[3] : "0";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(what, "threads")) return threads(atoi(first));
    if (!strcmp(what, "children")) return children(atoi(first));
    if (!strcmp(what, "hog")) return hog(atol(first));
    if (!strcmp(what, "empty")) return empty(atol(first));
    if (!strcmp(what, "burn")) return burn(atof(first));
    if (!strcmp(what, "reach")) return reach(first, atoi(second));
    if (!strcmp(what, "mount")) return mount("none", "/tmp", "tmpfs", 0, "") ? refused("a mount") : done("a mount");
    if (!strcmp(what, "exec")) {
        execl(first, first, "noop", (char *)NULL);
        return refused("exec");
    }
    if (!strcmp(what, "noop")) return done("nothing");
    if (!strcmp(what, "hold")) { /* hold NAME: is there, by that name */
        printf("holding\n");
        sleep(60);
        return 0;
    }
    fprintf(stderr, "what is %s?\n", what);
    return 20;
}

/* The dispatcher of the attacks: finds one by name and runs it under a watchdog. */
#include "attack.h"
#include <stdarg.h>

static void say(const char *word, const char *fmt, va_list ap)
{
    char text[1024];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n > (int)sizeof text - 1) n = sizeof text - 1;
    for (int i = 0; i < n; i++)
        if ((unsigned char)text[i] < 32 || text[i] == 127) text[i] = ' ';
    printf("%s %s\n", word, text);
    fflush(stdout);
}

int esc(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("ESCAPED", fmt, ap);
    va_end(ap);
    return 0;
}

int cant(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("CANNOT", fmt, ap);
    va_end(ap);
    return 20;
}

int blk(const char *what)
{
    int e = errno;
    printf("BLOCKED errno=%d (%s) %s\n", e, strerror(e), what);
    fflush(stdout);
    return 10;
}

int verdict(int ok, const char *what) { return ok ? esc("%s", what) : blk(what); }

int esc_read(int fd, const char *what)
{
    char buf[600];
    ssize_t n = read(fd, buf, sizeof buf - 1);
    if (n < 0) return blk(what);
    if (n == 0) {
        errno = ENODATA;
        return blk(what);
    }
    buf[n] = 0;
    for (ssize_t i = 0; i < n; i++)
        if (!buf[i]) buf[i] = ' ';
    return esc("%s: %s", what, buf);
}

int put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int pass_on(pid_t child, const char *what)
{
    int status;
    if (child < 0) return blk(what);
    if (waitpid(child, &status, 0) < 0) return cant("waitpid: %s", strerror(errno));
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    printf("BLOCKED errno=0 (signal %d) %s\n", WTERMSIG(status), what);
    fflush(stdout);
    return 10;
}

static int noop(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return esc("nothing tried");
}

int main(int argc, char **argv)
{
    static const struct attack own[] = {{"noop", noop}, {"launch", launch}, {"victim", victim}, {"peer", peer}, {0, 0}};
    const struct attack *tables[] = {own, files_attacks, mounts_attacks, procs_attacks, sockets_attacks,
                                     kernel_attacks, bombs_attacks, state_attacks, exec_attacks, races_attacks};
    if (argc < 2) return cant("usage: attack NAME ARGS");
    if (strcmp(argv[1], "launch")) alarm(25);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct attack *a = tables[t]; a->name; a++)
            if (!strcmp(a->name, argv[1])) return a->run(argc - 2, argv + 2);
    return cant("no attack named %s", argv[1]);
}

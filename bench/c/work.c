/* Work that is timed from within, so that start-up does not count: the same binary runs bare and inside.
 *
 * work syscalls COUNT             three loops of COUNT rounds; prints one line each: NAME NANOSECONDS-PER-ROUND
 * work least syscalls COUNT       the same under the least there can be: a filter of one instruction, which allows, and a
 *                                 Landlock ruleset of one rule, which allows. What is slower then is the kernel's price.
 * work repeat COUNT PROGRAM ARGS  runs the program COUNT times; prints one line of nanoseconds each: run NANOSECONDS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Numbers of Landlock's calls, which older headers lack: the same on every architecture. */
#define CREATE_RULESET 444
#define ADD_RULE 445
#define RESTRICT_SELF 446

static void least(void)
{
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    unsigned long long handled = (1ULL << 13) - 1; /* every right of the first version */
    struct {
        unsigned long long rights;
        int parent;
    } __attribute__((packed)) rule = {handled, open("/", O_PATH | O_CLOEXEC)};
    int ruleset = syscall(CREATE_RULESET, &handled, sizeof handled, 0);
    if (rule.parent < 0 || ruleset < 0 || syscall(ADD_RULE, ruleset, 1, &rule, 0))
        fail("a Landlock ruleset");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(RESTRICT_SELF, ruleset, 0))
        fail("Landlock");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        fail("seccomp");
    close(ruleset);
    close(rule.parent);
}

static int syscalls(long count)
{
    long long start = now();
    for (long i = 0; i < count; i++)
        syscall(SYS_getppid);
    printf("getppid %.2f\n", (double)(now() - start) / count);

    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char block[4096];
    if (zero < 0 || null < 0)
        fail("open /dev/zero and /dev/null");
    start = now();
    for (long i = 0; i < count; i++)
        if (read(zero, block, sizeof block) != sizeof block || write(null, block, sizeof block) != sizeof block)
            fail("read and write");
    printf("read+write %.2f\n", (double)(now() - start) / count);

    start = now();
    for (long i = 0; i < count; i++) {
        int fd = openat(AT_FDCWD, "/usr/bin/env", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            fail("open /usr/bin/env");
        close(fd);
    }
    printf("openat+close %.2f\n", (double)(now() - start) / count);
    return 0;
}

static int repeat(long count, char **argv)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    for (long i = 0; i < count; i++) {
        pid_t pid;
        int status;
        long long start = now();
        int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
        if (error) {
            fprintf(stderr, "%s: %s\n", argv[0], strerror(error));
            return 1;
        }
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "%s ended with status %#x\n", argv[0], status);
            return 1;
        }
        printf("run %lld\n", now() - start);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "syscalls"))
        return syscalls(atol(argv[2]));
    if (argc == 4 && !strcmp(argv[1], "least") && !strcmp(argv[2], "syscalls")) {
        least();
        return syscalls(atol(argv[3]));
    }
    if (argc > 3 && !strcmp(argv[1], "repeat"))
        return repeat(atol(argv[2]), argv + 3);
    fprintf(stderr, "usage: work [least] syscalls COUNT | work repeat COUNT PROGRAM ARGS\n");
    return 2;
}

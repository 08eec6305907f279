/* The floor: one clone3 with every namespace, exec and wait, and nothing else. What a sandbox with all namespaces
 * costs at the very least on this kernel, with no root view, no ids, no filter, no limit and no answer.
 *
 * floor PROGRAM: reads a count per line, makes that many calls, and answers with one line of nanoseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    char line[64];
    char *none[] = {NULL};
    if (argc != 2)
        return 2;
    char *child_argv[] = {argv[1], NULL};
    while (fgets(line, sizeof line, stdin)) {
        int count = atoi(line);
        for (int i = 0; i < count; i++) {
            struct clone_args args;
            memset(&args, 0, sizeof args);
            args.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
                | CLONE_NEWNET;
            args.exit_signal = SIGCHLD;
            long long start = now();
            long pid = syscall(SYS_clone3, &args, sizeof args);
            if (pid == 0) {
                execve(argv[1], child_argv, none);
                _exit(127);
            }
            if (pid < 0) {
                fprintf(stderr, "clone3 with every namespace: %s\n", strerror(errno));
                return 1;
            }
            int status;
            if (waitpid((pid_t)pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7) {
                fprintf(stderr, "the no-op did not exit with 7 (status %#x)\n", status);
                return 1;
            }
            printf(i + 1 < count ? "%lld " : "%lld\n", now() - start);
        }
        fflush(stdout);
    }
    return 0;
}

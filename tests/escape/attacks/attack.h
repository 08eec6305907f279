/* What every attack shares: the protocol by which it says how it went. Not part of the product.
 *
 * Exit 0 with a line `ESCAPED evidence`: the attack worked. Exit 10 with `BLOCKED errno=N`: it was refused.
 * Exit 20: it could not be tried, which the harness always counts as a failure of the test. */
#ifndef ATTACK_H
#define ATTACK_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

struct attack {
    const char *name;
    int (*run)(int argc, char **argv);
};

int esc(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int blk(const char *what);
int cant(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints what `fd` holds, control characters replaced, as evidence. */
int esc_read(int fd, const char *what);
/* esc when `ok`, else blk. */
int verdict(int ok, const char *what);
int put_file(const char *path, const char *text);
double now(void);
/* Waits for a child and passes its protocol exit on; a child that a signal ended counts as blocked. */
int pass_on(pid_t child, const char *what);

extern const struct attack files_attacks[], mounts_attacks[], procs_attacks[], sockets_attacks[], kernel_attacks[],
    bombs_attacks[], state_attacks[], exec_attacks[], races_attacks[];
int launch(int argc, char **argv);
int victim(int argc, char **argv);
int peer(int argc, char **argv);
#endif

/* Races: what is checked and what is used are two things, while a second thread swaps them. Each lasts under a second. */
#include "attack.h"
#include <pthread.h>

#define TOKEN "cofferdam-was-here\n"

static volatile int done;
static char *volatile shared;
static const char *one, *two, *place;

/* flips the path in memory */
static void *flip_text(void *x)
{
    while (!done) {
        strcpy(shared, one);
        strcpy(shared, two);
    }
    return x;
}

/* flips where a symbolic link leads */
static void *flip_link(void *x)
{
    char spare[4096];
    snprintf(spare, sizeof spare, "%s.spare", place);
    while (!done) {
        if (symlink(one, spare) == 0) rename(spare, place);
        if (symlink(two, spare) == 0) rename(spare, place);
    }
    return x;
}

static int holds(const char *path)
{
    char buf[64] = "";
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    return n > 0 && strstr(buf, "cofferdam-was-here") != NULL;
}

static int race(void *(*flip)(void *), const char *use, const char *target, int flags)
{
    pthread_t t;
    int hits = 0;
    if (pthread_create(&t, NULL, flip, NULL)) return cant("thread");
    for (double end = now() + 0.7; now() < end && !hits;) {
        int fd = open(use, flags, 0644);
        if (fd < 0) continue;
        if (write(fd, TOKEN, strlen(TOKEN)) > 0) hits = holds(target);
        close(fd);
    }
    done = 1;
    pthread_join(t, NULL);
    errno = EPERM;
    return verdict(hits, target);
}

/* race-text TARGET DECOY */
static int a_race_text(int argc, char **argv)
{
    (void)argc;
    one = argv[0], two = argv[1];
    shared = calloc(1, 8192);
    strcpy(shared, two);
    return race(flip_text, shared, one, O_WRONLY | O_CREAT);
}

/* race-link TARGET-DIR DECOY-DIR LINK NAME */
static int a_race_link(int argc, char **argv)
{
    char use[4096], target[4096];
    (void)argc;
    one = argv[0], two = argv[1], place = argv[2];
    snprintf(use, sizeof use, "%s/%s", place, argv[3]);
    snprintf(target, sizeof target, "%s/%s", one, argv[3]);
    return race(flip_link, use, target, O_WRONLY | O_CREAT);
}

/* tmpfile-link DIR TARGET: a nameless file is given a name */
static int a_tmpfile(int argc, char **argv)
{
    char path[64];
    int fd = open(argv[0], O_TMPFILE | O_WRONLY, 0644);
    (void)argc;
    if (fd < 0) return blk("O_TMPFILE");
    if (write(fd, TOKEN, strlen(TOKEN)) < 0) return cant("write");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return verdict(linkat(AT_FDCWD, path, AT_FDCWD, argv[1], AT_SYMLINK_FOLLOW) == 0, "linkat of a nameless file");
}

static int a_mknod_regular(int argc, char **argv)
{
    (void)argc;
    return verdict(mknod(argv[0], S_IFREG | 0644, 0) == 0, "mknod of a plain file");
}

static int a_mkdir(int argc, char **argv)
{
    (void)argc;
    return verdict(mkdir(argv[0], 0755) == 0, "mkdir");
}

/* dirfd-create DIR NAME: relative to a descriptor */
static int a_dirfd_create(int argc, char **argv)
{
    int d = open(argv[0], O_RDONLY | O_DIRECTORY);
    (void)argc;
    if (d < 0) return cant("%s: %s", argv[0], strerror(errno));
    return verdict(openat(d, argv[1], O_WRONLY | O_CREAT, 0644) >= 0, "openat");
}

const struct attack races_attacks[] = {{"race-text", a_race_text}, {"race-link", a_race_link},
                                       {"tmpfile-link", a_tmpfile}, {"mknod-regular", a_mknod_regular},
                                       {"mkdir", a_mkdir}, {"dirfd-create", a_dirfd_create}, {0, 0}};

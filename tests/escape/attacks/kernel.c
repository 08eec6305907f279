/* System calls that reach the kernel's own state, and tricks with numbers and arguments. */
#include "attack.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <termios.h>

/* Past the permission check: any answer but the refusals counts. Arguments make the calls harmless. */
static int past(long r, const char *what)
{
    if (r >= 0) return esc("%s", what);
    if (errno == EPERM || errno == EACCES || errno == ENOSYS) return blk(what);
    return esc("%s: past the permission check (errno %d)", what, errno);
}

static int a_reboot(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    /* leaves Ctrl-Alt-Del as it is on any machine without a console */
    return past(reboot(RB_DISABLE_CAD), "reboot(CAD_OFF)");
}

static int a_swapon(int argc, char **argv)
{
    (void)argc;
    return past(syscall(SYS_swapon, argv[0], 0), "swapon");
}

static int a_settimeofday(int argc, char **argv)
{
    struct timezone z = {0, 0};
    (void)argc;
    (void)argv;
    if (syscall(SYS_gettimeofday, NULL, &z)) return cant("gettimeofday");
    return past(syscall(SYS_settimeofday, NULL, &z), "settimeofday");
}

static int a_adjtime(int argc, char **argv)
{
    struct timex t = {0};
    (void)argc;
    (void)argv;
    if (adjtimex(&t) < 0) return blk("adjtimex");
    t.modes = ADJ_MAXERROR; /* what the kernel itself raises all the time */
    return past(syscall(SYS_clock_adjtime, 0, &t), "clock_adjtime");
}

static int a_clock_settime(int argc, char **argv)
{
    struct timespec t;
    (void)argc;
    (void)argv;
    clock_gettime(CLOCK_REALTIME, &t);
    return past(syscall(SYS_clock_settime, CLOCK_REALTIME, &t), "clock_settime");
}

static int a_acct(int argc, char **argv)
{
    (void)argc;
    return past(syscall(SYS_acct, argv[0]), "acct");
}

static int a_quotactl(int argc, char **argv)
{
    (void)argc;
    return past(syscall(SYS_quotactl, 0x80000700 /* Q_GETQUOTA */, argv[0], 12345, NULL), "quotactl");
}

static int a_syslog(int argc, char **argv)
{
    char buf[64];
    (void)argc;
    (void)argv;
    return past(syscall(SYS_syslog, 3, buf, sizeof buf), "syslog read");
}

static int a_delete_module(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_delete_module, "cofferdam_no_such", 0), "delete_module");
}

static int a_kexec(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_kexec_load, 0, 0, NULL, 0), "kexec_load");
}

static int a_fanotify(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_fanotify_init, 0, 0), "fanotify_init");
}

static int a_bpf(int argc, char **argv)
{
    struct { uint32_t type, key, value, max, flags; uint32_t pad[20]; } a = {2, 4, 4, 1, 0, {0}};
    (void)argc;
    (void)argv;
    return past(syscall(SYS_bpf, 0, &a, sizeof a), "bpf map");
}

static int a_perf(int argc, char **argv)
{
    struct { uint32_t type, size; uint64_t config, rest[14]; } a = {1, 128, 1, {0}};
    (void)argc;
    (void)argv;
    a.rest[3] = 1 << 5 | 1 << 6; /* exclude_kernel, exclude_hv */
    return past(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0), "perf_event_open");
}

static int a_uffd(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */), "userfaultfd");
}

static int a_io_uring(int argc, char **argv)
{
    char p[256] = {0};
    (void)argc;
    (void)argv;
    return past(syscall(SYS_io_uring_setup, 4, p), "io_uring_setup");
}

static int a_memfd_secret(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_memfd_secret, 0), "memfd_secret");
}

static int a_personality(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_personality, READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE), "personality");
}

static int a_ldt(int argc, char **argv)
{
    struct { unsigned entry, base, limit, flags; } d = {0, 0, 0xfffff, 0x51};
    (void)argc;
    (void)argv;
    return past(syscall(SYS_modify_ldt, 1, &d, sizeof d), "modify_ldt");
}

static int a_seccomp_listener(int argc, char **argv)
{
    struct { unsigned short code; unsigned char jt, jf; unsigned k; } f[] = {{6, 0, 0, 0x7fff0000}};
    struct { unsigned short len; void *f; } p = {1, f};
    (void)argc;
    (void)argv;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return verdict(syscall(SYS_seccomp, 1, 8 /* NEW_LISTENER */, &p) >= 0, "a listener of its own");
}

static int a_sethostname(int argc, char **argv)
{
    char name[256];
    (void)argc;
    (void)argv;
    gethostname(name, sizeof name);
    return past(syscall(SYS_sethostname, name, strlen(name)), "sethostname");
}

static int a_vhangup(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return past(syscall(SYS_ioperm, 0x80, 1, 1), "ioperm");
}

static int a_mempolicy(int argc, char **argv)
{
    unsigned long node = 1;
    (void)argc;
    return verdict(syscall(SYS_migrate_pages, atoi(argv[0]), 64, &node, &node) >= 0, "migrate_pages of another");
}

/* x32: getpid with bit 30. Surviving the call at all is the escape: the filter let the number through. */
static int a_x32(int argc, char **argv)
{
    (void)argc;
    long r = syscall((argc > 0 ? atoi(argv[0]) : SYS_getpid) | 0x40000000);
    return esc("an x32 call came back with %ld, errno %d", r, errno);
}

static long int80(long number, long first)
{
    long r = number;
    __asm__ volatile("int $0x80" : "+a"(r) : "b"(0L), "c"(0L), "D"(first) : "memory", "r8", "r9", "r10", "r11");
    return r;
}

/* gVisor knows no i386 calls: there int 0x80 makes one of x86-64, by its number and from its registers. 39 is getpid then
 * and succeeds; by i386 it is mkdir of no name, which nothing makes succeed. What is refused must be refused this way as
 * well: a user namespace, which no level lets anybody have. -1 where calls of i386 are what is made. */
static int int80_is_native(void)
{
    if (int80(39, 0) != getpid()) return -1;
    long native = syscall(SYS_unshare, 0x10000000), native_errno = errno; /* CLONE_NEWUSER */
    if (native == 0) return esc("%s", "a user namespace");
    long r = int80(SYS_unshare, 0x10000000);
    if (r >= 0) return esc("a refused call of x86-64 by int 0x80 came back with %ld", r);
    if (-r != native_errno) return esc("a refused call by int 0x80 says %ld", r);
    errno = native_errno;
    return blk("int 0x80 makes calls of x86-64, and what is refused stays refused");
}

static int a_int80(int argc, char **argv)
{
    int native = int80_is_native();
    if (native >= 0) return native;
    long r = 20; /* i386 getpid */
    (void)argc;
    (void)argv;
    __asm__ volatile("int $0x80" : "+a"(r)::"memory", "r8", "r9", "r10", "r11");
    if (r == -ENOSYS) {
        errno = ENOSYS;
        return blk("int 0x80");
    }
    return esc("an i386 call came back with %ld", r);
}

/* i386 socketcall/ptrace/mount by their own numbers, which mean other calls on x86-64 */
static int a_int80_mount(int argc, char **argv)
{
    int native = int80_is_native();
    if (native >= 0) return native;
    long r = 52; /* i386 umount2; x86-64: getpeername */
    (void)argc;
    (void)argv;
    __asm__ volatile("int $0x80" : "+a"(r) : "b"(0L), "c"(0L) : "memory", "r8", "r9", "r10", "r11");
    if (r == -ENOSYS) {
        errno = ENOSYS;
        return blk("int 0x80");
    }
    return esc("i386 umount2 came back with %ld", r);
}

/* ioctl FD-PATH REQUEST: the request as a 64-bit number, high bits and all */
static int a_ioctl(int argc, char **argv)
{
    char c = 'x';
    int fd = !strcmp(argv[0], "0") ? 0 : open(argv[0], O_RDWR | O_NOCTTY);
    unsigned long request = strtoul(argv[1], NULL, 0);
    (void)argc;
    if (fd < 0) return blk(argv[0]);
    if ((uint32_t)request == 0x541C) c = 6; /* TIOCLINUX: get shift state, changes nothing */
    long r = syscall(SYS_ioctl, fd, request, &c);
    return verdict(r >= 0, "ioctl");
}

static int a_tty_open(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return verdict(open("/dev/tty", O_RDWR) >= 0, "/dev/tty");
}

static int a_isatty(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < 3; i++)
        if (isatty(i)) return esc("descriptor %d is the caller's terminal", i);
    errno = ENOTTY;
    return blk("no terminal");
}

static int a_steal_tty(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int fd = open("/dev/tty", O_RDWR);
    if (fd < 0) fd = 0;
    signal(SIGTTOU, SIG_IGN);
    return verdict(tcsetpgrp(fd, getpgrp()) == 0, "foreground of the caller's terminal");
}

/* resize FD-PATH: the window's size as nobody has it */
static int a_resize(int argc, char **argv)
{
    struct winsize w = {.ws_row = 7, .ws_col = 311};
    int fd = !strcmp(argv[0], "0") ? 0 : open(argv[0], O_RDWR | O_NOCTTY);
    (void)argc;
    if (fd < 0) return blk(argv[0]);
    return verdict(ioctl(fd, TIOCSWINSZ, &w) == 0, "resize");
}

/* Leaves its terminal raw, by a death that nobody can clean up after when "die" is given. */
static int a_raw(int argc, char **argv)
{
    struct termios t;
    if (tcgetattr(0, &t)) return blk("tcgetattr");
    cfmakeraw(&t);
    if (tcsetattr(0, TCSANOW, &t)) return blk("tcsetattr");
    int said = esc("left the terminal raw");
    if (argc > 0 && !strcmp(argv[0], "die")) kill(getpid(), SIGKILL);
    return said;
}

/* Sends itself what a filter's kill looks like. */
static int a_forge_sigsys(int argc, char **argv)
{
    siginfo_t i = {0};
    (void)argc;
    i.si_signo = SIGSYS;
    i.si_code = argc > 0 && !strcmp(argv[0], "queue") ? -1 /* SI_QUEUE */ : 1 /* SYS_SECCOMP */;
    printf("ESCAPED about to forge\n");
    fflush(stdout);
    if (argc > 0 && syscall(SYS_rt_sigqueueinfo, getpid(), SIGSYS, &i) == 0) pause();
    kill(getpid(), SIGSYS);
    return 0;
}

/* An i386 call for real, so that the evidence has something true to tell. */
static int a_nothing_forged(int argc, char **argv) { return a_int80(argc, argv); }

const struct attack kernel_attacks[] = {
    {"reboot", a_reboot}, {"swapon", a_swapon}, {"settimeofday", a_settimeofday}, {"adjtime", a_adjtime},
    {"clock-settime", a_clock_settime}, {"acct", a_acct}, {"quotactl", a_quotactl}, {"syslog", a_syslog},
    {"delete-module", a_delete_module}, {"kexec", a_kexec}, {"fanotify", a_fanotify}, {"bpf", a_bpf},
    {"perf", a_perf}, {"uffd", a_uffd}, {"io-uring", a_io_uring}, {"memfd-secret", a_memfd_secret},
    {"personality", a_personality}, {"ldt", a_ldt}, {"seccomp-listener", a_seccomp_listener},
    {"sethostname", a_sethostname}, {"ioperm", a_vhangup}, {"migrate-pages", a_mempolicy}, {"x32", a_x32},
    {"int80", a_int80}, {"int80-umount", a_int80_mount}, {"ioctl", a_ioctl}, {"tty-open", a_tty_open},
    {"isatty", a_isatty}, {"resize", a_resize}, {"raw", a_raw}, {"steal-tty", a_steal_tty}, {"forge-sigsys", a_forge_sigsys},
    {"foreign-call", a_nothing_forged}, {0, 0}};

/* The program that waits to be killed: the payload of the memory measurement. Static, without libc, so that its own
 * memory is a few pages. */
void _start(void)
{
    for (;;) {
#if defined(__x86_64__)
        long result = 34; /* pause */
        __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");
#elif defined(__aarch64__)
        register long x0 __asm__("x0") = 0;
        register long x1 __asm__("x1") = 0, x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x8 __asm__("x8") = 73;
        __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x8) : "memory"); /* ppoll */
#else
#error "no pause for this machine"
#endif
    }
}

/*
 * The wall clock of one process, moved by a test.
 *
 * Loaded before the C library (LD_PRELOAD), it answers for the wall clock and for nothing else: monotonic time stays
 * the machine's, because a server measures its own timers with it. Where the clock stands comes from a file of two
 * numbers of 64 bits, in nanoseconds, that the test writes and this process maps: the instant at which the clock is
 * held (0: it runs), and what is added to it. Must not know: which server this is, and what the test is about.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static const volatile int64_t *hands;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("TOLLGATE_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    /* A server on the machine's clock would make a test pass or fail for the wrong reason. */
    if (map == MAP_FAILED) _exit(97);
    close(file);
    hands = map;
}

/* The system call and not the C library's function, which is the one that this file replaces. */
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (failed || !hands || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t held = hands[0];
    int64_t now = (held ? held : at->tv_sec * BILLION + at->tv_nsec) + hands[1];
    at->tv_sec = now / BILLION;
    at->tv_nsec = now % BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

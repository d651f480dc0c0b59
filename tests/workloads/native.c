/* A thread that burns CPU time and never enters Python; loaded by threads.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

volatile long native_tid;
volatile double native_seconds;
volatile unsigned long native_sum;

void *burn_natively(void *seconds)
{
    struct timespec begin, now;

    pthread_setname_np(pthread_self(), "native-thread");
    native_tid = syscall(SYS_gettid);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (unsigned long k = 0; k < 1000000; k++)
            native_sum += k;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        native_seconds = now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) / 1e9;
    } while (native_seconds < *(double *)seconds);
    return NULL;
}

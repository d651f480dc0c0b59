/* run(callback): a thread whose stack lies above its alternate signal stack in one block of memory, so that both are copied
 * together. A timer interrupts it anywhere, and it raises a signal whose handler calls back. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALTERNATE (128 << 10)
#define STACK (384 << 10)

static long (*call_back)(long);
static volatile unsigned long sum;

static void spin(unsigned long count)
{
    for (unsigned long k = 0; k < count; k++)
        sum += k;
}

static void on_timer(int number)
{
    spin(100000);
}

static void on_raise(int number)
{
    call_back(number);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};

    sigaction(number, &action, NULL);
}

static void *work(void *block)
{
    stack_t alternate = {.ss_sp = block, .ss_size = ALTERNATE};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec often = {.it_interval = {.tv_nsec = 1000000}, .it_value = {.tv_nsec = 1000000}};
    timer_t timer;

    sigaltstack(&alternate, NULL);
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &often, NULL);
    for (int k = 0; k < 200; k++) {
        call_back(k);
        raise(SIGUSR2);
        spin(20000);
    }
    timer_delete(timer);
    alternate.ss_flags = SS_DISABLE;
    sigaltstack(&alternate, NULL);
    return NULL;
}

long run(long (*callback)(long))
{
    char *block = mmap(NULL, ALTERNATE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;

    memset(block, 1, ALTERNATE + STACK);
    call_back = callback;
    handle(SIGUSR1, on_timer);
    handle(SIGUSR2, on_raise);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, block + ALTERNATE, STACK);
    if (pthread_create(&thread, &attributes, work, block))
        return -1;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    munmap(block, ALTERNATE + STACK);
    return 0;
}

/* Sends and receives through the libucp of ucp.c.
   usage: program LIBRARY midway|reuse|fork|attached|slow|unfinished|fails|receives|idle|many|paced|fast */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint32_t mask, flags;
    void *request;
    void (*callback)(void *, int8_t, void *);
    uint64_t datatype;
    void *data;
} parameters;

typedef struct {
    uint64_t tag, length;
} information;

/* The library's endpoint whose other side is gone. Every transfer number has an endpoint of its own. */
#define GONE ((void *)0xdead)
#define ENDPOINT(number) ((void *)(0xe0000 + (number)))
#define WORKER ((void *)0xf0000)

static void *(*tag_send)(void *, const void *, size_t, uint64_t, const parameters *);
static void *(*tag_receive)(void *, void *, size_t, uint64_t, uint64_t, const parameters *);
static unsigned (*progress)(void *);
static void (*request_free)(void *);
static uint64_t (*all_sent)(void);

static char buffer[1 << 17];
static uint64_t called, received;

static void done(void *request, int8_t status, void *data)
{
    called += request != NULL && status == 0 && data == &called;
}

static void came(void *request, int8_t status, const information *about, void *data)
{
    called += request != NULL && status == 0 && data == &called;
    received += about->length;
}

static void *load(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    tag_send = (void *(*)(void *, const void *, size_t, uint64_t, const parameters *))dlsym(library, "ucp_tag_send_nbx");
    tag_receive =
        (void *(*)(void *, void *, size_t, uint64_t, uint64_t, const parameters *))dlsym(library, "ucp_tag_recv_nbx");
    progress = (unsigned (*)(void *))dlsym(library, "ucp_worker_progress");
    request_free = (void (*)(void *))dlsym(library, "ucp_request_free");
    all_sent = (uint64_t (*)(void))dlsym(library, "ucp_all_sent");
    /* Leaves time to attach. */
    usleep(1000000);
    return library;
}

static void *begin(uint64_t number)
{
    parameters with = {2 | 4 | 8, 0, NULL, done, 1 << 3, &called};
    return tag_send(ENDPOINT(number), buffer, 1000 + number, number, &with);
}

static void *begin_another(uint64_t number, void *through, const void *from, uint64_t datatype)
{
    parameters with = {2 | 4 | 8, 0, NULL, done, datatype, &called};
    return tag_send(through, from, 1000 + number, number, &with);
}

static void end(void *request)
{
    progress(NULL);
    request_free(request);
}

static void receives(uint64_t from, uint64_t to)
{
    for (uint64_t number = from; number < to; number++) {
        parameters with = {2 | 4 | 8, 0, NULL, (void (*)(void *, int8_t, void *))came, 1 << 3, &called};
        end(tag_receive(WORKER, buffer, 1000 + number, number, -1, &with));
    }
}

static void sends(uint64_t from, uint64_t to)
{
    for (uint64_t number = from; number < to; number++)
        end(begin(number));
}

/* Sends as fast as possible for `seconds`, then `slow` times slowly, numbered from `from`. */
static void sends_many(time_t seconds, uint64_t from, uint64_t slow)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        sends(0, 500);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < seconds);
    for (uint64_t number = from; number < from + slow; number++) {
        sends(number, number + 1);
        usleep(5000);
    }
}

/* Sends at a rate per second, each with its number, and catches up when late. */
static void sends_paced(uint64_t rate, uint64_t count)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t number = 0; number < count;) {
        usleep(1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t spent = (now.tv_sec - start.tv_sec) * 1000000000LL + (now.tv_nsec - start.tv_nsec);
        uint64_t due = spent * rate / 1000000000;
        for (due = due < count ? due : count; number < due; number++)
            end(begin(number));
    }
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    const char *file = words[1], *mode = words[2];
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (!strcmp(mode, "midway")) {
        usleep(500000);
        void *library = load(file);
        sends(0, 100);
        dlclose(library);
        if (dlopen(file, RTLD_NOW | RTLD_NOLOAD))
            return 3;
        usleep(300000);
        load(file);
        sends(100, 200);
    } else if (!strcmp(mode, "reuse")) {
        load(file);
        sends(0, 1000);
    } else if (!strcmp(mode, "fork")) {
        load(file);
        sends(0, 10);
        /* pyobs knows the callback from here on. */
        usleep(500000);
        void *open = begin(10);
        pid_t child = fork();
        if (child == 0) {
            end(open);
            sends(20, 25);
            usleep(500000);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        end(open);
    } else if (!strcmp(mode, "attached")) {
        load(file);
        void *open = begin(0);
        int number;
        puts("ready");
        fflush(stdout);
        sigwait(&signals, &number);
        /* Completes at once. pyobs knows the callback from here on, but not the request that calls it next. */
        begin_another(1, ENDPOINT(1), NULL, 1 << 3);
        usleep(500000);
        end(open);
        sends(2, 52);
    } else if (!strcmp(mode, "slow")) {
        load(file);
        int number;
        puts("ready");
        fflush(stdout);
        sigwait(&signals, &number);
        void *open = begin(0);
        usleep(2500000);
        end(open);
    } else if (!strcmp(mode, "unfinished")) {
        load(file);
        begin(0);
    } else if (!strcmp(mode, "fails")) {
        load(file);
        sends(0, 3);
        /* An invalid data type. */
        begin_another(3, ENDPOINT(3), buffer, 1 << 3 | 7);
        /* pyobs knows the callback from here on. */
        usleep(500000);
        end(begin_another(4, GONE, buffer, 1 << 3));
    } else if (!strcmp(mode, "receives")) {
        load(file);
        receives(0, 1);
        usleep(500000);
        received = 0;
        receives(1, 101);
        printf("received %lu ", (unsigned long)received);
    } else if (!strcmp(mode, "many")) {
        load(file);
        sends_many(3, 1000, 800);
    } else if (!strcmp(mode, "paced")) {
        load(file);
        sends_paced(7000, 35000);
    } else if (!strcmp(mode, "fast")) {
        load(file);
        sends_paced(10000, 80000);
    } else if (!strcmp(mode, "idle")) {
        load(file);
        sends(0, 5);
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        uint64_t calls = 0, trapped = 0;
        do {
            /* A probe places a breakpoint there. */
            trapped += *(volatile unsigned char *)progress == 0xcc;
            progress(NULL);
            calls++;
            usleep(500);
            clock_gettime(CLOCK_MONOTONIC, &to);
        } while (to.tv_sec - from.tv_sec < 8);
        double seconds = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
        printf("rate %.0f trapped %lu of %lu ", calls / seconds, (unsigned long)trapped, (unsigned long)calls);
    }
    printf("called %lu sent %lu\n", (unsigned long)called, (unsigned long)all_sent());
    fflush(stdout);
    usleep(500000);
    return 0;
}

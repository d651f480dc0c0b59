/* Sends messages of eight bytes from each thread to itself through a libucp: a receive and a send are two transfers. Prints their
   number and the seconds that they took; with TRANSFERS 0 it runs forever and prints the time and the seconds per message for each
   tenth of a second.
   usage: transfers LIBRARY THREADS TRANSFERS [TRANSFERS-PER-SECOND] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 8, FEATURE_TAG = 1, AT_ONCE = 64 };

/* From ucp/api/ucp.h: a mask of the fields that are set, these fields, and room for the others. */
typedef struct { uint64_t mask, features; char rest[256]; } context_parameters;
typedef struct { uint64_t mask; int thread_mode; char rest[256]; } worker_parameters;
typedef struct { uint64_t mask; const void *address; char rest[512]; } endpoint_parameters;
typedef struct {
    uint32_t mask, flags;
    void *request, *callback;
    uint64_t datatype;
    void *data, *rest[8];
} parameters;

static void *library;
static uint64_t of_each;
static double rate;
static pthread_barrier_t ready;

static void *found(const char *name)
{
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return function;
}

static void check(int status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s: %d\n", what, status);
        exit(1);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void (*request_free)(void *);

static void sent(void *request, int8_t status, void *done)
{
    (void)status;
    ++*(uint64_t *)done;
    request_free(request);
}

static void received(void *request, int8_t status, const void *about, void *done)
{
    (void)about;
    sent(request, status, done);
}

static void *run(void *argument)
{
    int (*read_config)(const char *, const char *, void **) = found("ucp_config_read");
    int (*init)(unsigned, unsigned, const context_parameters *, void *, void **) = found("ucp_init_version");
    int (*create_worker)(void *, const worker_parameters *, void **) = found("ucp_worker_create");
    int (*get_address)(void *, void **, size_t *) = found("ucp_worker_get_address");
    int (*create_endpoint)(void *, const endpoint_parameters *, void **) = found("ucp_ep_create");
    void *(*receive)(void *, void *, size_t, uint64_t, uint64_t, const parameters *) = found("ucp_tag_recv_nbx");
    void *(*send)(void *, const void *, size_t, uint64_t, const parameters *) = found("ucp_tag_send_nbx");
    unsigned (*progress)(void *) = found("ucp_worker_progress");
    void *config, *context, *worker, *address, *endpoint;
    size_t length;
    context_parameters with = {1, FEATURE_TAG, {0}};
    worker_parameters of_worker = {0, 0, {0}};
    check(read_config(NULL, NULL, &config), "ucp_config_read");
    check(init(1, 10, &with, config, &context), "ucp_init_version");
    check(create_worker(context, &of_worker, &worker), "ucp_worker_create");
    check(get_address(worker, &address, &length), "ucp_worker_get_address");
    endpoint_parameters to = {1, address, {0}};
    check(create_endpoint(worker, &to, &endpoint), "ucp_ep_create");

    uint64_t from = 0, into = 0, done = 0, begun = 0;
    parameters of_receive = {2 | 4, 0, NULL, (void *)received, 0, &done, {0}};
    parameters of_send = {2 | 4, 0, NULL, (void *)sent, 0, &done, {0}};
    pthread_barrier_wait(&ready);
    double start = now(), window = start;
    uint64_t before = 0;
    while (!of_each || begun < of_each) {
        void *requests[2] = {
            receive(worker, &into, sizeof into, 7, UINT64_MAX, &of_receive),
            send(endpoint, &from, sizeof from, 7, &of_send),
        };
        begun += 2;
        done += !requests[0] + !requests[1];
        while (done < begun)
            progress(worker);
        if (begun / 2 % AT_ONCE)
            continue;
        double at = now();
        if (!of_each && at >= window + 0.1) {
            printf("%.6f %.9f\n", at, (at - window) / (double)((begun - before) / 2));
            fflush(stdout);
            window = at;
            before = begun;
        }
        double ahead = rate > 0 ? start + (double)begun / rate - at : 0;
        if (ahead > 0)
            usleep((useconds_t)(ahead * 1e6));
    }
    *(uint64_t *)argument = begun;
    return NULL;
}

int main(int count, char **words)
{
    uint64_t made[THREADS_MAX] = {0}, all = 0;
    pthread_t threads[THREADS_MAX];
    int many = count > 3 ? atoi(words[2]) : 0;
    if (many < 1 || many > THREADS_MAX) {
        fprintf(stderr, "usage: %s LIBRARY THREADS TRANSFERS [TRANSFERS-PER-SECOND]\n", words[0]);
        return 2;
    }
    setenv("UCX_TLS", "self", 1);
    setenv("UCX_LOG_LEVEL", "error", 0);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    library = dlopen(words[1], RTLD_NOW);
    check(library == NULL, words[1]);
    of_each = strtoull(words[3], NULL, 10) / (uint64_t)many;
    rate = count > 4 ? atof(words[4]) / many : 0;
    request_free = (void (*)(void *))found("ucp_request_free");
    pthread_barrier_init(&ready, NULL, (unsigned)many + 1);
    for (int thread = 0; thread < many; thread++)
        check(pthread_create(&threads[thread], NULL, run, &made[thread]), "pthread_create");
    /* Leaves time to attach to the library. */
    usleep(2000000);
    pthread_barrier_wait(&ready);
    double start = now();
    for (int thread = 0; thread < many; thread++) {
        pthread_join(threads[thread], NULL);
        all += made[thread];
    }
    printf("%llu %.6f\n", (unsigned long long)all, now() - start);
    /* Skips the library's exit handlers. */
    _exit(fflush(stdout) ? 1 : 0);
}

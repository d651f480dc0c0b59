/* A libucp with room for one request: a send or receive is pending until progress is made, and each request has the same address.
   Half of a receive's buffer is filled. With MOVED, its parameters differ from those of UCX 1 (ucp/api/ucp.h); MAJOR sets another
   version. */
#include <stddef.h>
#include <stdint.h>

#ifndef MAJOR
#define MAJOR 1
#endif

typedef void (*callback)(void *request, int8_t status, void *data);

typedef struct {
    uint64_t tag, length;
} information;

typedef void (*receive_callback)(void *request, int8_t status, const information *, void *data);

typedef struct {
    uint32_t mask, flags;
    void *request;
#ifdef MOVED
    uint64_t another;
#endif
    callback callback;
    uint64_t datatype;
    void *data;
} parameters;

enum { HAS_CALLBACK = 2, HAS_DATA = 4, HAS_DATATYPE = 8 };

/* Sends through this endpoint fail (UCS_ERR_CONNECTION_RESET). */
#define GONE ((void *)0xdead)

static struct {
    int pending, receives;
    int8_t status;
    information came;
    callback callback;
    void *data;
} the_request;

static uint64_t sent;

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = MAJOR;
    *minor = 7;
    *release = 0;
}

/* Inlined, so that its callers end where they return. */
static inline __attribute__((always_inline)) void *pend(const parameters *with, int8_t status, int receives)
{
    the_request.pending = 1;
    the_request.receives = receives;
    the_request.status = status;
    the_request.callback = with->mask & HAS_CALLBACK ? with->callback : NULL;
    the_request.data = with->mask & HAS_DATA ? with->data : NULL;
    return &the_request;
}

void *ucp_tag_send_nbx(void *endpoint, const void *buffer, size_t count, uint64_t tag, const parameters *with)
{
    uint64_t datatype = with->mask & HAS_DATATYPE ? with->datatype : 1 << 3;
    (void)tag;
    if ((datatype & 7) != 0)
        return (void *)-5;
    sent += count * (datatype >> 3);
    /* Without a buffer, it completes at once. */
    if (!buffer)
        return NULL;
    return pend(with, endpoint == GONE ? -25 : 0, 0);
}

void *ucp_tag_recv_nbx(void *worker, void *buffer, size_t count, uint64_t tag, uint64_t mask, const parameters *with)
{
    (void)worker, (void)buffer, (void)mask;
    the_request.came = (information){tag, count / 2};
    return pend(with, 0, 1);
}

unsigned ucp_worker_progress(void *worker)
{
    (void)worker;
    if (!the_request.pending)
        return 0;
    the_request.pending = 0;
    if (the_request.callback && the_request.receives)
        ((receive_callback)the_request.callback)(&the_request, 0, &the_request.came, the_request.data);
    else if (the_request.callback)
        the_request.callback(&the_request, the_request.status, the_request.data);
    return 1;
}

uint64_t ucp_all_sent(void)
{
    return sent;
}

void ucp_request_free(void *request)
{
    (void)request;
    sent += 0;
}

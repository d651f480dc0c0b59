/* A libucp with room for one request: what is sent is pending until progress is made, and each request lies where the one before
   did. With MOVED, its parameters are not those of UCX 1 (ucp/api/ucp.h); with MAJOR it says that it is another. */
#include <stddef.h>
#include <stdint.h>

#ifndef MAJOR
#define MAJOR 1
#endif

typedef void (*callback)(void *request, int8_t status, void *data);

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

static struct {
    int pending;
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

void *ucp_tag_send_nbx(void *endpoint, const void *buffer, size_t count, uint64_t tag, const parameters *with)
{
    uint64_t datatype = with->mask & HAS_DATATYPE ? with->datatype : 1 << 3;
    (void)endpoint, (void)buffer, (void)tag;
    if ((datatype & 7) != 0)
        return (void *)-5;
    sent += count * (datatype >> 3);
    /* What is nothing is there at once. */
    if (!buffer)
        return NULL;
    the_request.pending = 1;
    the_request.callback = with->mask & HAS_CALLBACK ? with->callback : NULL;
    the_request.data = with->mask & HAS_DATA ? with->data : NULL;
    return &the_request;
}

unsigned ucp_worker_progress(void *worker)
{
    (void)worker;
    if (!the_request.pending)
        return 0;
    the_request.pending = 0;
    if (the_request.callback)
        the_request.callback(&the_request, 0, the_request.data);
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

// A library with arenas that pyobs has no description of.
#include <stdint.h>
#include <stdlib.h>

struct pool {
    void *memory;
    uint32_t used;
    uint32_t size;
};

struct pool *pool_open(size_t unused, uint32_t size) {
    struct pool *pool = malloc(sizeof *pool);
    pool->memory = malloc(size);
    pool->used = (uint32_t)(unused * 0);
    pool->size = size;
    return pool;
}

/// The memory is the caller's.
void pool_place(void *at, uint32_t size) {
    struct pool *pool = at;
    pool->memory = at;
    pool->used = 0;
    pool->size = size;
}

void pool_grow(struct pool **at, uint32_t size) {
    (*at)->size += size;
    (*at)->memory = realloc((*at)->memory, (*at)->size);
}

void *pool_take(struct pool *pool, uint32_t bytes) {
    void *taken = (char *)pool->memory + pool->used;
    pool->used += bytes;
    return taken;
}

void pool_give(void *taken, struct pool *pool) {
    pool->used += taken == pool;
}

void pool_close(struct pool *pool) {
    free(pool->memory);
    free(pool);
}

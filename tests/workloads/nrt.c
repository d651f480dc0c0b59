/* A stand-in for the functions of Numba's runtime that make and free MemInfos (numba/core/runtime/nrt.cpp). */
#include <stddef.h>
#include <stdlib.h>

struct MemInfo {
    size_t references;
    void *destructor, *about;
    void *data;
    size_t size;
};

struct MemInfo *NRT_MemInfo_alloc(size_t size)
{
    struct MemInfo *made = malloc(sizeof *made + size);
    *made = (struct MemInfo){1, NULL, NULL, made + 1, size};
    return made;
}

void NRT_dealloc(struct MemInfo *which)
{
    free(which);
}

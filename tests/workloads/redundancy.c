/* Memory accesses with a redundancy that the caller decides. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

double load_all(const double *values, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

void store_all(double *values, long count, double value)
{
    for (long i = 0; i < count; i++)
        values[i] = value;
}

/* Accesses one address `count` times. */
void hammer(volatile double *value, long count)
{
    for (long i = 0; i < count; i++)
        *value = *value + 1;
}

/* Accesses the thread's stack, and thread-local data, through an address that does not show what it is. */
double own_stack(long count)
{
    double value = 0, *address = &value;
    __asm__ volatile("" : "+r"(address));
    hammer(address, count);
    return value;
}

static __thread double own __attribute__((tls_model("initial-exec")));

double own_data(long count)
{
    double *address = &own;
    *address = 0;
    __asm__ volatile("" : "+r"(address));
    hammer(address, count);
    return own;
}

/* Counts up and down again. */
void counts(volatile long *count, long times)
{
    for (long i = 0; i < times; i++) {
        *count = *count + 1;
        *count = *count - 1;
    }
}

/* Stores each value once, with some dependent work between. */
void stream(double *values, long count, double value)
{
    unsigned long work = 1;
    for (long i = 0; i < count; i++) {
        for (int turn = 0; turn < 16; turn++)
            __asm__ volatile("imul $31, %0" : "+r"(work));
        values[i] = value;
    }
}

/* Computes without memory accesses. */
unsigned long compute(long count)
{
    unsigned long value = 1;
    for (long i = 0; i < count; i++)
        for (int turn = 0; turn < 64; turn++)
            __asm__ volatile("imul $31, %0" : "+r"(value));
    return value;
}

/* Maps memory at an address, fills it, adds it up, and unmaps it. Returns -1 if the address is taken. */
double remap(void *at, long count, double value)
{
    size_t bytes = (size_t)count * sizeof(double);
    double *values = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (values == MAP_FAILED)
        return -1;
    store_all(values, count, value);
    double sum = load_all(values, count);
    munmap(values, bytes);
    return sum;
}

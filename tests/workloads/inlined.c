/* A function into which the compiler inlines others. */
static inline __attribute__((always_inline)) unsigned long innermost(unsigned long sum, unsigned long count)
{
    for (unsigned long k = 0; k < count; k++) {
        sum = sum * 31 + k;
        __asm__ volatile("" : "+r"(sum));
    }
    return sum;
}

static inline __attribute__((always_inline)) unsigned long middle(unsigned long sum, unsigned long count)
{
    sum ^= count;
    return innermost(sum, count) + 1;
}

unsigned long outermost(unsigned long count)
{
    return middle(7, count) ^ innermost(count, 10);
}

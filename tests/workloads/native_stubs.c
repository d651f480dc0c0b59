/* run(callback): mostly calls through the procedure linkage table. */
#include <stdlib.h>
#include <string.h>

volatile long total;

__attribute__((noinline)) void native_stubs_step(long number)
{
    total += number;
}

long run(long (*callback)(long))
{
    for (long k = 0; k < 50000; k++) {
        native_stubs_step(k);
        native_stubs_step(abs((int)k));
    }
    return callback(1);
}

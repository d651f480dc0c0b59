/* A library that generates code as JIT compilers do, lists it in /tmp/perf-PID.map, prints "ready" and runs it forever. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const unsigned char INNER[] = {
    0x55, 0x48, 0x89, 0xe5,       /* push %rbp; mov %rsp, %rbp */
    0xb9, 0x00, 0x00, 0x10, 0x00, /* mov $1048576, %ecx */
    0xff, 0xc9, 0x75, 0xfc,       /* dec %ecx; jne back by 4 */
    0x5d, 0xc3,                   /* pop %rbp; ret */
};
static const unsigned char OUTER[] = {
    0x55, 0x48, 0x89, 0xe5, /* push %rbp; mov %rsp, %rbp */
    0xe8, 0, 0, 0, 0,       /* call INNER */
    0xb9, 0x00, 0x00, 0x04, 0x00, 0xff, 0xc9, 0x75, 0xfc,
    0x5d, 0xc3,
};
#define INNER_AT 0x400

int run(void)
{
    char name[64];
    FILE *map;
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int distance = INNER_AT - 9;

    if (code == MAP_FAILED)
        return 1;
    memcpy(code, OUTER, sizeof(OUTER));
    memcpy(code + 5, &distance, sizeof(distance));
    memcpy(code + INNER_AT, INNER, sizeof(INNER));
    snprintf(name, sizeof(name), "/tmp/perf-%d.map", getpid());
    map = fopen(name, "w");
    if (!map)
        return 1;
    fprintf(map, "%lx %zx made::outer\n", (unsigned long)code, sizeof(OUTER));
    fprintf(map, "%lx %zx made::inner: a loop in a.js:7\n", (unsigned long)code + INNER_AT, sizeof(INNER));
    fclose(map);
    puts("ready");
    fflush(stdout);
    alarm(300);
    for (;;)
        ((void (*)(void))code)();
}

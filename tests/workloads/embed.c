/* embed LIBPYTHON SCRIPT SECONDS: a program that loads Python only after SECONDS. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALL(type, name, ...) ((type)symbol(library, name))(__VA_ARGS__)

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

/* The script finds it by its name. */
void call_back(void (*function)(void))
{
    function();
    /* Prevents a tail call. */
    __asm__ volatile("");
}

int main(int argc, char **argv)
{
    FILE *script;
    void *library;

    if (argc != 4)
        return 2;
    puts("ready");
    fflush(stdout);
    usleep((useconds_t)(atof(argv[3]) * 1e6));
    library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    CALL(void (*)(int), "Py_InitializeEx", 0);
    script = fopen(argv[2], "r");
    if (!script)
        return 1;
    CALL(int (*)(FILE *, const char *), "PyRun_SimpleFile", script, argv[2]);
    return 0;
}

/* embed_two LIBPYTHON LIBPYTHON SCRIPT: a program that runs two CPythons, the second in a linker namespace of its own.
   Prints `ready` when both are started, waits for SIGUSR1, and has the first one run the script. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        fprintf(stderr, "%s\n", dlerror());
    return found;
}

int main(int argc, char **argv)
{
    void *first, *second;
    void (*start)(int);
    int (*run)(FILE *, const char *);
    FILE *script;
    sigset_t signals;
    int got;

    if (argc != 4)
        return 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    first = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    second = dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    for (int which = 0; which < 2; which++) {
        start = (void (*)(int))symbol(which ? second : first, "Py_InitializeEx");
        if (!start)
            return 1;
        start(0);
    }
    puts("ready");
    fflush(stdout);
    sigwait(&signals, &got);
    script = fopen(argv[3], "r");
    run = (int (*)(FILE *, const char *))symbol(first, "PyRun_SimpleFile");
    return script && run ? run(script, argv[3]) : 1;
}

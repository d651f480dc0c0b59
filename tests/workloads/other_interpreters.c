/* Looks like an interpreter that pyobs does not read: PyPy with -DPYPY, otherwise CPython 2.7. Runs for a second, or with an
   argument for half a minute. */
#include <time.h>
#include <unistd.h>

#ifdef PYPY
int pypy_main_startup(int count, char **arguments) { return count + !arguments; }
#else
void *_PyThreadState_Current;
void *PyGILState_GetThisThreadState(void) { return _PyThreadState_Current; }
const char *Py_GetVersion(void) { return "2.7.18"; }
#endif

int main(int count, char **arguments)
{
    (void)arguments;
    while (clock() < CLOCKS_PER_SEC / 2);
    sleep(count > 1 ? 30 : 1);
    return 0;
}

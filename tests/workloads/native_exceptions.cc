/* run(callback): exceptions in flight. Destructors and handlers call back. */
#include <stdexcept>
#include <string>

typedef long (*Callback)(long);
static volatile long total;

struct Guard {
    Callback callback;
    long depth;

    ~Guard()
    {
        total = total + (depth % 3 ? depth : callback(depth));
    }
};

static long down(Callback callback, long depth)
{
    Guard guard = {callback, depth};

    if (depth == 0)
        throw std::runtime_error(std::string("at the bottom"));
    if (depth == 5) {
        try {
            return down(callback, depth - 1) + 1;
        } catch (const std::logic_error &) {
            return 1;
        }
    }
    return down(callback, depth - 1) + 1;
}

extern "C" long run(Callback callback)
{
    for (int k = 0; k < 20; k++) {
        try {
            total = total + down(callback, 12);
        } catch (const std::exception &error) {
            total = total + callback(error.what()[0]);
        }
    }
    return total;
}

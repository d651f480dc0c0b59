// Calls back from templates of the C++ library, and while an exception is in flight.
#include <algorithm>
#include <stdexcept>
#include <vector>

using Callback = int (*)(int, int);

struct Guard {
    Callback callback;
    ~Guard() { callback(0, 0); }
};

extern "C" int by_std_sort(Callback callback) {
    std::vector<int> numbers{2, 1};
    std::sort(numbers.begin(), numbers.end(), [callback](int left, int right) { return callback(left, right) != 0; });
    return numbers[0];
}

__attribute__((noinline)) static void throwing(Callback callback) {
    Guard guard{callback};
    throw std::runtime_error("in flight");
}

extern "C" int unwinding(Callback callback) {
    try {
        throwing(callback);
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}

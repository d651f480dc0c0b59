"""Runs functions of 15,000 and 60,000 lines, and one whose line table is larger than 8 MiB. Five lines of each take time.

Prints the CPU seconds of these lines and the size of each line table: {"functions": [{"name", "bytes", "lines": [[line,
seconds], ...]}, ...]}. pyobs does not read the last table.
"""

import json
import sys
import time

SECONDS = 0.3
BYTES_MAX = 8 << 20


def table(code):
    return code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab


def burn(line, seconds):
    start = time.process_time()
    end = start + SECONDS
    while time.process_time() < end:
        sum(range(3000))
    seconds.append([line, time.process_time() - start])


def made(count):
    """Builds a function with `count` lines that calls `burn` on five of them."""
    slow = {10, count // 10, count // 4, count // 2, count - 10}
    lines = ["def of_%d_lines(burn, seconds):" % count]
    for line in range(2, count + 1):
        if line in slow:
            lines.append("    burn(%d, seconds)" % line)
        else:
            lines.append("    x = %d" % (line % 250) if line % 3 else "    y = [x, %d]" % (line % 250))
    space = {"x": 0}
    exec(compile("\n".join(lines), "long_lines", "exec"), space)
    return space["of_%d_lines" % count]


def with_more_bytes(function, count):
    """The same function, with a table that continues beyond its end."""
    code, whole = function.__code__, table(function.__code__)
    more = whole * (count // len(whole) + 1)
    function.__code__ = code.replace(**{"co_linetable" if sys.version_info >= (3, 10) else "co_lnotab": more})
    return function


def run(function):
    seconds = []
    function(burn, seconds)
    return {"name": function.__name__, "bytes": len(table(function.__code__)), "lines": seconds}


functions = [run(made(count)) for count in (15000, 60000)]
if sys.version_info >= (3, 8):
    functions.append(run(with_more_bytes(made(1000), BYTES_MAX)))
print(json.dumps({"functions": functions}))

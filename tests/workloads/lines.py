"""Burns CPU time in a function called from lines of many shapes, and records what each line cost.

The last line of output is JSON: {"cpu_s": [[function, line, seconds], …], "lines": {function: [line, …]}}: the thread's CPU time
in burn() by calling line, as the caller's frame had it, and every line of each function's code, with 0 for instructions without
a line.
"""
import dis
import json
import sys
import time

SPENT = {}
ROUNDS = 12


def cpu_time():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def burn(amount):
    begin = cpu_time()
    sum(range(60000 * amount))
    caller = sys._getframe(1)
    code = caller.f_code
    key = (getattr(code, "co_qualname", code.co_name), caller.f_lineno)
    SPENT[key] = SPENT.get(key, 0.0) + cpu_time() - begin
    return amount


def straight():
    burn(1)
    burn(2)

    burn(3)
    # The line table skips comments and empty lines.


    burn(4)


def loops():
    for k in range(2):
        burn(1)
        while k < 2:
            burn(2)
            k += 1
    else:
        burn(1)
    return [
        burn(1)
        for k in range(2)
        if burn(1)
    ]


def backwards():
    """Lines that come after greater ones."""
    total = max(
        burn(1),
        burn(2) + (
            burn(3)
            if burn(1) else
            burn(5)
        ),
        key=lambda one: burn(
            2
        ),
    )
    return (
        total, total.real if burn(3) else 0,
        {
            "a": burn(1), "b":
                burn(2),
        }, [
            burn(3)])


class Manager:
    def __enter__(self):
        burn(1)

    def __exit__(self, *exception):
        burn(2)
        return True


def without_lines():
    """Instructions without a line come between: with, except, finally and their clean-up."""
    with Manager() as one, Manager() as two:
        burn(1)
        raise ValueError
    burn(2)
    try:
        try:
            burn(1)
            raise KeyError
        except KeyError as error:
            burn(2)
        finally:
            burn(3)
        for k in range(3):
            try:
                if k == 1:
                    continue
                if k == 2:
                    break
                burn(1)
            finally:
                burn(1)
    except (ValueError,
            TypeError):
        pass
    burn(4)
    del one, two


def generators():
    def numbers():
        yield burn(1)
        yield (
            burn(2)
        )

    return list(numbers()), burn(1)


# Line steps that do not fit in a byte, forwards and, in a loop, backwards; and a first line beyond 65,535.
FAR = "\n" * 70000 + """\
def far():
    for k in range(2):
        burn(1)
""" + "\n" * 130 + """\
        burn(2)
""" + "\n" * 254 + """\
        burn(3)
""" + "\n" * 255 + """\
        burn(1)
""" + "\n" * 256 + """\
        burn(2)
""" + "\n" * 1000 + """\
        burn(3) if k else max(burn(1),
""" + "\n" * 300 + """\
            burn(2))
    burn(4)
"""


def wide():
    """Columns that do not fit in a byte, and a long line with much code."""
    a = b = c = d = 1
    return burn(1) + a + b + c + d + a + b + c + d + a + b + c + d + a + b + c + d + a + b + c + d + a + b + c + d + a + b + c + d + a + b + c + d + burn(2) + a + b + c + d + a + b + c + d + burn(1)


def lines_of(code, found):
    name = getattr(code, "co_qualname", code.co_name)
    if hasattr(code, "co_lines"):
        lines = {line or 0 for _, _, line in code.co_lines()}
    else:
        lines = {line for _, line in dis.findlinestarts(code)}
    # The line of a frame that has not executed anything yet.
    lines.add(code.co_firstlineno)
    found.setdefault(name, set()).update(lines)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            lines_of(constant, found)


def main():
    names = {"burn": burn}
    compiled = compile(FAR, __file__, "exec")
    exec(compiled, names)
    for _ in range(ROUNDS):
        for function in (straight, loops, backwards, without_lines, generators, names["far"], wide):
            function()
    found = {}
    lines_of(compile(open(__file__).read(), __file__, "exec"), found)
    lines_of(compiled, found)
    spent = [[function, line, seconds] for (function, line), seconds in sorted(SPENT.items())]
    print(json.dumps({"cpu_s": spent, "lines": {name: sorted(lines) for name, lines in found.items()}}))


if __name__ == "__main__":
    main()

"""Prints line tables and the truth about them, by the interpreter that runs this (3.6 and later).

One line per code object, tab-separated: its name, co_firstlineno, the table in hex, the runs of lines by dis or co_lines(),
and those by PyCode_Addr2Line, the C function that tracebacks use. A run is END:LINE, with LINE empty for "no line"; the runs
cover the bytecode from offset 0.
"""
import ctypes
import dis
import glob
import os
import random
import sys
import types

NEW = sys.version_info >= (3, 10)
addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
addr2line.restype = ctypes.c_int


def runs(lines):
    """Joins [line of offset 0, of offset 1, ...] to runs."""
    out = []
    for offset, line in enumerate(lines):
        text = "" if line is None or line < 0 else str(line)
        if out and out[-1][1] == text:
            out[-1][0] = offset + 1
        else:
            out.append([offset + 1, text])
    return ",".join("%d:%s" % tuple(run) for run in out)


def by_python(code):
    size = len(code.co_code)
    lines = [None] * size
    if NEW:
        for start, end, line in code.co_lines():
            for offset in range(start, min(end, size)):
                lines[offset] = line
    else:
        # Offsets before the first start belong to the first line.
        starts = [(0, code.co_firstlineno)] + list(dis.findlinestarts(code)) + [(size, None)]
        for (start, line), (end, _) in zip(starts, starts[1:]):
            for offset in range(start, end):
                lines[offset] = line
    return lines


def show(what, code, python=True):
    table = code.co_linetable if NEW else code.co_lnotab
    if NEW:
        # Only whole code units, because each call walks the table from its start.
        native = [line for offset in range(0, len(code.co_code), 2) for line in [addr2line(code, offset)] * 2]
    else:
        native = [addr2line(code, offset) for offset in range(len(code.co_code))]
    print("\t".join([
        ascii(what + " " + code.co_name), str(code.co_firstlineno), table.hex(),
        runs(by_python(code)) if python else "", runs(native),
    ]))


def show_all(what, code):
    show(what, code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show_all(what, constant)


# The standard library without its tests: code of many authors.
FOLDERS = ["", "asyncio", "collections", "concurrent/futures", "ctypes", "email", "http", "importlib", "json", "logging",
           "multiprocessing", "unittest", "urllib", "xml/etree"]
# Without a few large literals, because the time grows with the square of the code's size.
LITERALS = ("_sysconfigdata", "locale", "stringprep")

SOURCES = {
    "calls": """
def f(a, b=1, *c,
      d=2, **e):
    return f(
        a,
        f(
            b, *c
        ).x[
            d
        ],
        **e
    )(1,
      2)
""",
    "decorated": """
@f(
    1
)
@g
class A(
    B,
    metaclass=C,
):
    x = (
        1 +
        y
    )

    @property

    def p(self): return self.x
    async def q(self):
        async with self.x as y, self.z:
            async for z in y:
                yield [i async for i in z
                       if i
                       or z]
        await self.q(
            1)
""",
    "control": """
def f(x):
    try:
        with x as y, \\
                y.z(
                    1) as z:
            for i in (
                a for a in y
                if a
            ):
                if not i: continue
                elif z: break
            else:
                return {k: v
                        for k, v in z}
        while x:
            x = lambda: (
                1
                + y)
    except (A,
            B) as e:
        raise X from e
    except C:
        pass
    else:
        del x
    finally:
        try:
            return x
        except:
            assert x, (
                "m"
                f"{x!r:>{y}}"
            )
""",
    "match": """
def f(x):
    match x:
        case {"a": 1,
              **rest} if rest:
            return 1
        case [A(b=c),
              *_] | (
              None as c):
            pass
        case _:
            return (
                2)
""",
    "groups": """
def f():
    try:
        g()
    except* A as e:
        raise
    except* (B,
             C):
        pass
    finally:
        h()
""",
    "generics": """
def f[T: (int,
          str)](x: T) -> T:
    type A[X] = list[
        X]
    return A
class B[T]:
    pass
""",
    "gaps": "x = 1\n" + "\n" * 130 + "y = 2\n" + "\n" * 300 + "def f():\n" + "\n" * 70000 + "    return (\n" + "\n" * 600
            + "    1 + x)\nz = 3\n",
    "back": "x = (\n" + "\n" * 400 + "f(\n\n\n1).y(" + "\n" * 260 + "2)\n(\n3))\n" + "for a in (\n" + "\n" * 200 + "b): c\n",
    "expression": "def f():\n    return [\n" + "".join("        a%d + (\n b),\n" % i for i in range(150)) + "    ]\n",
    "wide": "def f():\n    return [" + ", ".join("a%d.b" % i for i in range(80)) + "]\nx = 1\n",
    "long": "def f(x):\n" + "".join("    x = x + %d\n" % (i * 1000) for i in range(200)),
    "lambda": "f = lambda: 0",
    "empty": "",
    "first_line_is_0": "\n\n\npass\n",
}


def varint(value):
    out = []
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    return out + [value]


def random_table(size):
    """A table that a compiler could write for this many bytes of code, or that none would."""
    out, covered = [], 0
    if sys.version_info >= (3, 11):
        while covered < size:
            units, kind = random.randrange(8), random.randrange(16)
            covered += 2 * (units + 1)
            delta = random.choice([0, 1, -1, 70, -70, 5000, -5000, 10 ** 6])
            out.append(0x80 | kind << 3 | units)
            if kind < 10:
                out.append(random.randrange(128))
            elif kind < 13:
                out += [random.randrange(128), random.randrange(128)]
            elif kind < 15:
                out += varint(-delta << 1 | 1 if delta < 0 else delta << 1)
                if kind == 14:
                    out += varint(random.choice([0, 3, 900])) + varint(random.randrange(300)) + varint(7)
    elif NEW:
        while covered < size:
            step = random.choice([0, 2, 4, 6, 40, 254])
            covered += step
            out += [step, random.choice([0, 1, 2, 127, 129, 255, 128, random.randrange(256)])]
    else:
        while covered < size + 100:
            step = random.choice([0, 0, 1, 2, 4, 6, 40, 255])
            covered += step
            out += [step, random.choice([0, 1, 2, 127, 129, 255, 128, random.randrange(256)])]
    return bytes(out)


def with_table(code, table):
    if sys.version_info >= (3, 8):
        return code.replace(**{"co_linetable" if NEW else "co_lnotab": table})
    c = code
    return types.CodeType(
        c.co_argcount, c.co_kwonlyargcount, c.co_nlocals, c.co_stacksize, c.co_flags, c.co_code, c.co_consts, c.co_names,
        c.co_varnames, c.co_filename, c.co_name, c.co_firstlineno, table, c.co_freevars, c.co_cellvars)


def main():
    library = os.path.dirname(os.__file__)
    for path in sorted(sum((glob.glob(os.path.join(library, folder, "*.py")) for folder in FOLDERS), [])):
        if os.path.basename(path).startswith(LITERALS):
            continue
        with open(path, "rb") as file:
            show_all(os.path.relpath(path, library), compile(file.read(), "library", "exec"))
    for name, source in SOURCES.items():
        for optimize in (0, 2):
            try:
                code = compile(source, name, "exec", optimize=optimize)
            except SyntaxError:
                if sys.version_info >= (3, 12):
                    raise
                break
            show_all(name, code)
    random.seed(626)
    for source in ("x = 1", "f(a, b)[c] = d + e\n" * 20):
        code = compile(source, "random", "exec")
        for _ in range(200):
            show("random", with_table(code, random_table(len(code.co_code))), python=NEW)


main()

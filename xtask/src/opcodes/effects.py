# Prints as JSON what this interpreter's instructions do to the value stack, from its own `dis.stack_effect`, by which
# its compiler sizes that stack.
#
# The effect of an instruction is base + each * argument + the weights of the argument's lowest bits that are set. Of an
# argument with two numbers in it, their sum is meant.
import dis
import json
import opcode
import sys

BITS = 4
version = sys.version_info[:2]


def effect(number, argument, jump):
    return dis.stack_effect(number, argument if number >= dis.HAVE_ARGUMENT else None, jump=jump)


def fit(name, number, jump):
    if number < dis.HAVE_ARGUMENT:
        return [effect(number, 0, jump)]
    # Its argument is 2 or 3, and `dis` treats any other like 2.
    if name == "BUILD_SLICE":
        two, three = (effect(number, argument, jump) for argument in (2, 3))
        return [two - 2 * (three - two), three - two]
    if name in PAIRS:
        base, each = effect(number, 0, jump), effect(number, 1, jump) - effect(number, 0, jump)
        for before, after in ((0, 1), (3, 0), (5, 7)):
            if effect(number, before | after << 8, jump) != base + each * (before + after):
                return None
        return [base, each]
    seen = [effect(number, argument, jump) for argument in range(48)]
    each = (seen[32] - seen[16]) // 16
    weights = [seen[1 << bit] - seen[0] - (each << bit) for bit in range(BITS)]
    for argument, value in enumerate(seen):
        bits = sum(weight for bit, weight in enumerate(weights) if argument >> bit & 1)
        if value != seen[0] + each * argument + bits:
            return None
    row = [seen[0], each] + weights
    while len(row) > 1 and row[-1] == 0:
        row.pop()
    return row


PAIRS = ("UNPACK_EX",)
ENDS = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST",
        "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
caches = getattr(opcode, "_inline_cache_entries", {})
found = {}
for name, number in opcode.opmap.items():
    if number > 255 or name.startswith("INSTRUMENTED_"):
        continue
    jump = number in dis.hasjrel or number in dis.hasjabs
    try:
        row = {"effect": fit(name, number, False), "jumped": fit(name, number, True) if jump else None}
    except ValueError:
        continue
    if row["effect"] is None or (jump and row["jumped"] is None):
        continue
    # In 3.11 the stack effect of PRECALL removes the arguments, but CALL actually does.
    if version == (3, 11) and name in ("PRECALL", "CALL"):
        row["effect"] = [0] if name == "PRECALL" else [-1, -1]
    # The value that a generator is sent when it starts is on the stack before its first instruction.
    if name == "RETURN_GENERATOR":
        row["effect"] = [1]
    if name == "GEN_START":
        row["effect"] = [0]
    if jump:
        backward = "BACKWARD" in name
        row["jump"] = "absolute" if number in dis.hasjabs else "backward" if backward else "forward"
    row["pair"] = name in PAIRS
    row["ends"] = name in ENDS
    row["caches"] = caches[number] if isinstance(caches, list) else caches.get(name, 0)
    found[name] = row
special = getattr(opcode, "_specializations", {})
print(json.dumps({"base": found, "of": {name: base for base, names in special.items() for name in names}}))

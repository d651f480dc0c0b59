# Prints the numbers of this interpreter's instructions as JSON, from its own modules and, if installed, from its header
# files. The two must agree.
import json
import opcode
import os
import re
import sysconfig

numbers = dict(opcode.opmap)
numbers.update(getattr(opcode, "_specialized_opmap", {}))
for header in ("opcode.h", "opcode_ids.h"):
    path = os.path.join(sysconfig.get_path("include"), header)
    if os.path.exists(path):
        with open(path) as text:
            for name, number in re.findall(r"(?m)^ *#define +([A-Z0-9_]+) +(\d+)\s*$", text.read()):
                if numbers.setdefault(name, int(number)) != int(number):
                    raise SystemExit("%s has %s for %s, but the interpreter uses %d" % (path, name, number, numbers[name]))
print(json.dumps(numbers))

"""execs.py SECONDS PROGRAM [ARGUMENT]...: burns this much CPU time and then executes that program in the same process."""
import os
import sys

from burn import burn

burn("before_exec", float(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])

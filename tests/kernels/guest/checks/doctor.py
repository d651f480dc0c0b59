"""Compares what doctor says about each family with what happened when the family was recorded alone."""
import json
import subprocess

from pyobs import PATIENCE_S, PYOBS, refusals

# The verifier processes at most a million instructions; pyobs keeps to 60 % of them.
BUDGET = 600000


def checks():
    done = subprocess.run([PYOBS, "doctor", "--json"], timeout=PATIENCE_S, stdout=subprocess.PIPE)
    document = json.loads(done.stdout.decode())
    bad = [check for check in document["checks"] if check["status"] == "missing"]
    why = {family: "%(name)s: %(why)s" % check for check in bad for family in check["families"]}
    families = {family for check in document["checks"] for family in check["families"]}
    wrong = [
        "%s: doctor says %r, record %r" % (family, why.get(family, "works"), refusals[family] or "works")
        for family in sorted(families & set(refusals))
        if (family in why) != bool(refusals[family])
    ]
    most = [program for program in document["programs"] if (program["instructions"] or 0) > BUDGET]
    yield "the verifier's budget", "; ".join("%(name)s: %(instructions)s instructions" % program for program in most)
    yield "agrees with the recordings", "; ".join(wrong), {"doctor": document}

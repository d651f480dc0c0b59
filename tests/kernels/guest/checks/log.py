"""Reads the kernel's own log: a probe must not make the kernel complain."""
import subprocess

COMPLAINTS = ("BUG:", "WARNING:", "Oops", "rcu: INFO", "soft lockup", "hung task", "leaking uprobe")


def checks():
    text = subprocess.run(["dmesg"], stdout=subprocess.PIPE).stdout.decode(errors="replace")
    bad = [line for line in text.splitlines() if any(word in line for word in COMPLAINTS)]
    yield "no complaint", "; ".join(bad[:5])

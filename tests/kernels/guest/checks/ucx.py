"""Compares transfers of the stand-in for libucp (workloads/ucp.c) with what its user counted."""
from pyobs import record

BESIDE = True
PROGRAM = ["/guest/programs/ucp_user", "/guest/programs/libucp.so.0"]
SENDS, RECEIVES = 1000, 100


def checks():
    recording = record("ucx", {mode: PROGRAM + [mode] for mode in ("reuse", "receives")})
    sender, receiver = recording.programs
    of = lambda program: [it for it in recording.report["transfers"] if it["pid"] == program.pid]
    sent = of(sender)
    assert printed(sender, "called") == SENDS, sender.stdout
    tags = sorted(int(it["tag"], 16) for it in sent)
    complete = sum(it["completed_s"] is not None and it["operation"] == "tag_send" for it in sent)
    yield "sends", (tags != list(range(SENDS)) or complete != SENDS) and "%d sends, %d complete" % (len(sent), complete)
    total = sum(it["bytes"] for it in sent)
    yield "bytes sent", total != printed(sender, "sent") and "%d bytes, known: %d" % (total, printed(sender, "sent"))
    received = [it for it in of(receiver) if it["operation"] == "tag_recv" and int(it["tag"], 16) > 0]
    total = sum(it["bytes"] for it in received)
    is_wrong = len(received) != RECEIVES or total != printed(receiver, "received")
    yield "receives", is_wrong and "%d receives, %d bytes; known: %s" % (len(received), total, receiver.stdout)


def printed(program, word):
    words = program.stdout.split()
    return int(words[words.index(word) + 1])

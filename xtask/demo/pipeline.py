"""A small data pipeline with a fault in each stage, until standard input ends or for SECONDS: `pipeline.py [SECONDS]`.

    loader --shared tensors--> features --shared vectors--> exchange send --UCXX--> exchange receive
    service                     checkpoint, every few seconds

Each planted fault is marked by `# planted: <finding>`. Pipes connect the stages, and say which slot of the shared memory is
full. A stage without its packages is left out, together with those after it.
"""
import importlib.util, os, select, signal, subprocess, sys, time

import segments

FOLDER = os.path.dirname(os.path.abspath(__file__))
CHECKPOINT_SECONDS = 4


def start(*words, **streams):
    python = [sys.executable, "-B", "-u", os.path.join(FOLDER, words[0] + ".py")]
    return subprocess.Popen(python + list(words[1:]), **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **streams})


def start_all(prefix):
    here = {name: importlib.util.find_spec(name) is not None for name in ("numpy", "ucxx")}
    stages = [start("service")]
    if not here["numpy"]:
        print("demo: without NumPy: features and transfers are left out", file=sys.stderr)
        return stages + [start("loader", prefix)]
    loader = start("loader", prefix, stdout=subprocess.PIPE)
    features = start("features", prefix, stdin=loader.stdout, stdout=subprocess.PIPE if here["ucxx"] else subprocess.DEVNULL)
    loader.stdout.close()
    stages += [loader, features]
    if not here["ucxx"]:
        print("demo: without UCXX: transfers are left out", file=sys.stderr)
        return stages
    receiver = start("exchange", "receive", stdout=subprocess.PIPE)
    port = receiver.stdout.readline().decode().strip()
    sender = start("exchange", "send", port, prefix, stdin=features.stdout)
    features.stdout.close()
    return stages + [receiver, sender]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    end = time.monotonic() + float(sys.argv[1]) if len(sys.argv) > 1 else None
    segments.remove_abandoned()
    prefix = segments.prefix(os.getpid())
    stages, checkpoints = [], 0
    try:
        stages = start_all(prefix)
        print("ready", flush=True)
        while end is None or time.monotonic() < end:
            start("checkpoint", prefix, str(checkpoints)).wait()
            checkpoints += 1
            if end is not None:
                time.sleep(CHECKPOINT_SECONDS)
            elif select.select([sys.stdin], [], [], CHECKPOINT_SECONDS)[0]:
                break
    finally:
        for stage in stages:
            stage.kill()
        for stage in stages:
            stage.wait()
        segments.remove(prefix)


if __name__ == "__main__":
    main()

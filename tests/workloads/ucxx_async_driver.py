#!/usr/bin/env python3
"""UCXX for asyncio: two processes over loopback, which check what they receive and print their round trips. Usage:
  ucxx_async_driver.py --mode thread|thread-polling|polling|blocking --delayed 0|1
                       --future 0|1 --api tag|am|multi --size BYTES --iters N
                       [--window W] [--frames K] [--hold SECONDS] [--tls tcp,self,sm]
Parent = server, child (spawned by subprocess) = client.  Prints JSON lines.
"""
import argparse, asyncio, json, os, subprocess, sys, time

ap = argparse.ArgumentParser()
ap.add_argument("--mode", default="thread")
ap.add_argument("--delayed", type=int, default=None)
ap.add_argument("--future", type=int, default=0)
ap.add_argument("--api", default="tag", choices=["tag", "am", "multi"])
ap.add_argument("--size", type=int, default=4096)
ap.add_argument("--frames", type=int, default=4)
ap.add_argument("--iters", type=int, default=200)
ap.add_argument("--window", type=int, default=1)
ap.add_argument("--hold", type=float, default=0.0, help="sleep before traffic (attach time)")
ap.add_argument("--gap", type=float, default=0.0, help="sleep between iterations")
ap.add_argument("--idle", type=float, default=0.0, help="idle seconds after the traffic")
ap.add_argument("--tls", default="tcp,self,sm")
ap.add_argument("--client-port", type=int, default=0)
a = ap.parse_args()

os.environ["UCX_TLS"] = a.tls
os.environ.setdefault("UCX_NET_DEVICES", "lo")
os.environ["UCXPY_PROGRESS_MODE"] = a.mode
if a.delayed is not None:
    os.environ["UCXPY_ENABLE_DELAYED_SUBMISSION"] = str(a.delayed)
os.environ["UCXPY_ENABLE_PYTHON_FUTURE"] = str(a.future)
os.environ.setdefault("UCX_LOG_LEVEL", "error")
import numpy as np

# UCXX creates a CUDA context when its progress thread starts. Tests need no GPU, so a failure is ignored.
import ucxx._cuda_context as _cc
_orig = _cc.ensure_cuda_context
def _safe(device_id=0):
    try:
        _orig(device_id)
    except BaseException as e:      # no driver on this machine
        if os.environ.get("SHOW_CUDA_ERR"):
            print("cuda ctx:", type(e).__name__, e, file=sys.stderr)
if not os.environ.get("NO_CUDA_PATCH"):
    _cc.ensure_cuda_context = _safe
import ucxx

async def xfer(ep, sender, api, i):
    if api == "tag":
        if sender:
            msgs = [np.full(a.size, (i + k) & 255, dtype="u1") for k in range(a.window)]
            await asyncio.gather(*[ep.send(m) for m in msgs])
        else:
            bufs = [np.empty(a.size, dtype="u1") for _ in range(a.window)]
            await asyncio.gather(*[ep.recv(b) for b in bufs])
            return bufs[0]
    elif api == "am":
        if sender:
            for k in range(a.window):
                await ep.am_send(np.full(a.size, i & 255, dtype="u1"))
        else:
            for k in range(a.window):
                r = await ep.am_recv()
            return np.frombuffer(r, dtype="u1") if not isinstance(r, np.ndarray) else r
    else:  # multi: header + frames
        if sender:
            fr = [np.full(a.size * (k + 1), i & 255, dtype="u1") for k in range(a.frames)]
            await ep.send_multi(fr)
        else:
            fr = await ep.recv_multi()
            return np.asarray(fr[0]).view("u1")

async def server():
    done = asyncio.Event(); res = {}
    async def handler(ep):
        t = None; n = 0
        for i in range(a.iters):
            b = await xfer(ep, False, a.api, i)
            if t is None: t = time.monotonic()
            assert b[0] == (i & 255), (i, b[0])
            await xfer(ep, True, a.api, i); n += 1
        res.update(role="server", pid=os.getpid(), round_trips=n, sec=round(time.monotonic() - t, 4))
        await ep.close(); done.set()
    lst = ucxx.create_listener(handler, port=0)
    p = subprocess.Popen([sys.executable] + [os.path.abspath(sys.argv[0])] + sys.argv[1:] + ["--client-port", str(lst.port)])
    try:
        await asyncio.wait_for(done.wait(), 120)
    finally:
        pass
    if a.idle: await asyncio.sleep(a.idle)
    res["us_per_rt"] = round(res["sec"] / max(1, res["round_trips"] - 1) * 1e6, 1)
    print(json.dumps(res), flush=True)
    lst.close(); p.wait(30)
    ucxx.stop_notifier_thread() if hasattr(ucxx, "stop_notifier_thread") else None

async def client():
    if a.hold: await asyncio.sleep(a.hold)
    ep = await ucxx.create_endpoint("127.0.0.1", a.client_port)
    for i in range(a.iters):
        await xfer(ep, True, a.api, i)
        await xfer(ep, False, a.api, i)
        if a.gap: await asyncio.sleep(a.gap)
    await ep.close()
    if a.idle: await asyncio.sleep(a.idle)
    ucxx.stop_notifier_thread() if hasattr(ucxx, "stop_notifier_thread") else None

async def main():
    # An exception that skips stop_notifier_thread() leaves a non-daemon notifier thread, which interpreter shutdown
    # then joins forever (reproduce with LEAK_NOTIFIER=1).
    try:
        await (client() if a.client_port else server())
    except Exception as e:
        if os.environ.get("LEAK_NOTIFIER"): raise
        print("driver:", type(e).__name__, e, file=sys.stderr)
    finally:
        if not os.environ.get("LEAK_NOTIFIER"): ucxx.stop_notifier_thread()

asyncio.run(main())

#!/usr/bin/env python3
"""Synchronous UCXX: two processes over loopback, which check what they receive and print their round trips.
usage: ucxx_sync_driver.py --api tag|stream|am|multi --progress thread|thread-polling|blocking --delayed 0|1 [--size N --iters N --hold S]"""
import argparse, json, os, subprocess, sys, time
ap=argparse.ArgumentParser(); ap.add_argument("--api",default="tag"); ap.add_argument("--progress",default="thread"); ap.add_argument("--delayed",type=int,default=1)
ap.add_argument("--size",type=int,default=65536); ap.add_argument("--iters",type=int,default=200); ap.add_argument("--hold",type=float,default=0); ap.add_argument("--window",type=int,default=1)
ap.add_argument("--tls",default="tcp,self,sm"); ap.add_argument("--client-port",type=int,default=0)
a=ap.parse_args()
os.environ.update(UCX_TLS=a.tls, UCX_NET_DEVICES="lo"); os.environ.setdefault("UCX_LOG_LEVEL","error")
import ucxx._lib.libucxx as U
from ucxx._lib.arr import Array
F=U.Feature; ctx=U.UCXContext(feature_flags=(F.TAG,F.STREAM,F.AM,F.WAKEUP,F.RMA))
w=U.UCXWorker(ctx, enable_delayed_submission=bool(a.delayed), enable_python_future=False)
thr=a.progress.startswith("thread")
if thr: w.start_progress_thread(polling_mode=a.progress=="thread-polling", epoll_timeout=1)
else: w.init_blocking_progress_mode()
def wait(rs):
    for r in rs:
        while not r.completed:
            if thr: time.sleep(0)
            else: w.progress_worker_event(1)
        r.check_error()
def go(ep,send,i):
    if a.api=="multi":
        if send:
            r=ep.tag_send_multi(tuple(Array(bytes([i&255])*a.size) for _ in range(4)), tag=U.UCXXTag(5))
        else: r=ep.tag_recv_multi(tag=U.UCXXTag(5), tag_mask=U.UCXXTagMask(2**64-1))
        while not r.completed:
            if thr: time.sleep(0)
            else: w.progress_worker_event(1)
        r.check_error(); return
    rs=[]; bufs=[]
    for k in range(a.window):
        b=bytearray([i&255])*a.size if send else bytearray(a.size); bufs.append(b); A=Array(b)
        if a.api=="tag": rs.append(ep.tag_send(A,tag=U.UCXXTag(5)) if send else ep.tag_recv(A,tag=U.UCXXTag(5)))
        elif a.api=="stream": rs.append(ep.stream_send(A) if send else ep.stream_recv(A))
        else: rs.append(ep.am_send(A) if send else ep.am_recv())
    wait(rs)
    if not send and a.api in("tag","stream"): assert bufs[0][0]==(i&255) and bufs[0][-1]==(i&255)
if not a.client_port:
    eps=[]
    def h(cr): eps.append(L.create_endpoint_from_conn_request(cr,True))
    L=U.UCXListener.create(worker=w,port=0,cb_func=h)
    p=subprocess.Popen([sys.executable]+sys.argv+["--client-port",str(L.port)])
    while not eps:
        if thr: time.sleep(.001)
        else: w.progress_worker_event(1)
    ep=eps[0]; t=None
    for i in range(a.iters):
        go(ep,False,i); t=t or time.monotonic(); go(ep,True,i)
    d=time.monotonic()-t; print(json.dumps(dict(vars(a),us_per_rt=round(d/max(1,a.iters-1)*1e6,1))),flush=True); p.wait(20)
else:
    if a.hold: time.sleep(a.hold)
    ep=U.UCXEndpoint.create(w,"127.0.0.1",a.client_port,endpoint_error_handling=True)
    for i in range(a.iters): go(ep,True,i); go(ep,False,i)
    time.sleep(.3)
if thr: w.stop_progress_thread()

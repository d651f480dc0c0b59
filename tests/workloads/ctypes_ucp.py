#!/usr/bin/env python3
"""UCX by ctypes, without UCXX; prints how many transfers it made, and how many completed at once.
One process, self endpoint (worker address), tag + stream-less; submits S sends and recvs per round,
progress in the main thread or in a thread (--thread). usage: ctypes_ucp.py [--size N] [--iters N] [--thread] [--lib PATH]"""
import argparse, ctypes as C, os, sys, time, threading
ap=argparse.ArgumentParser(); ap.add_argument("--size",type=int,default=65536); ap.add_argument("--iters",type=int,default=1000); ap.add_argument("--thread",action="store_true"); ap.add_argument("--lib",default="libucp.so.0"); a=ap.parse_args()
os.environ.setdefault("UCX_TLS","tcp,self,sm"); os.environ.setdefault("UCX_NET_DEVICES","lo"); os.environ.setdefault("UCX_LOG_LEVEL","error")
L=C.CDLL(a.lib); P=C.c_void_p; U=C.c_uint64
class Par(C.Structure): _fields_=[("mask",C.c_uint32),("flags",C.c_uint32),("request",P),("cb",P),("datatype",U),("user_data",P),("reply",P),("memtype",C.c_int),("info",P),("memh",P),("pad",U*4)]
class CtxP(C.Structure): _fields_=[("mask",U),("features",U),("rest",C.c_char*256)]
class WkP(C.Structure): _fields_=[("mask",U),("thread_mode",C.c_int),("rest",C.c_char*256)]
class EpP(C.Structure): _fields_=[("mask",U),("address",P),("rest",C.c_char*512)]
for f in ("ucp_tag_send_nbx","ucp_tag_recv_nbx"): getattr(L,f).restype=P
L.ucp_tag_send_nbx.argtypes=[P,P,C.c_size_t,U,P]; L.ucp_tag_recv_nbx.argtypes=[P,P,C.c_size_t,U,U,P]; L.ucp_request_free.argtypes=[P]; L.ucp_worker_progress.argtypes=[P]
def ck(s,w):
    if s: sys.exit("%s failed: %d"%(w,s))
cfg=P(); ck(L.ucp_config_read(None,None,C.byref(cfg)),"config"); ctx=P(); cp=CtxP(); cp.mask=1; cp.features=1   # FEATURES field, UCP_FEATURE_TAG
maj,mi,rel=C.c_uint(),C.c_uint(),C.c_uint(); L.ucp_get_version(C.byref(maj),C.byref(mi),C.byref(rel))
ck(L.ucp_init_version(1,10,C.byref(cp),cfg,C.byref(ctx)),"init"); w=P(); wp=WkP(); wp.mask=1; wp.thread_mode=2; ck(L.ucp_worker_create(ctx,C.byref(wp),C.byref(w)),"worker")
ad=P(); n=C.c_size_t(); ck(L.ucp_worker_get_address(w,C.byref(ad),C.byref(n)),"addr"); ep=P(); e=EpP(); e.mask=1; e.address=ad; ck(L.ucp_ep_create(w,C.byref(e),C.byref(ep)),"ep")
done=[0]; SCB=C.CFUNCTYPE(None,P,C.c_int8,P); RCB=C.CFUNCTYPE(None,P,C.c_int8,P,P)
def _s(r,s,u): done[0]+=1; L.ucp_request_free(r)
def _r(r,s,i,u): done[0]+=1; L.ucp_request_free(r)
scb,rcb=SCB(_s),RCB(_r); stop=[False]
def loop():
    while not stop[0]:
        if not L.ucp_worker_progress(w): time.sleep(0.0002)
th=threading.Thread(target=loop) if a.thread else None
if th: th.start()
src=C.create_string_buffer(b"\x5a"*a.size,a.size); dst=C.create_string_buffer(a.size); imm=pend=0; t=time.time()
for i in range(a.iters):
    want=done[0]; rp=Par(); rp.mask=2|4; rp.cb=C.cast(rcb,P).value; rp.user_data=i+1; r=L.ucp_tag_recv_nbx(w,dst,a.size,7,2**64-1,C.byref(rp))
    sp=Par(); sp.mask=2|4; sp.cb=C.cast(scb,P).value; sp.user_data=i+1; s=L.ucp_tag_send_nbx(ep,src,a.size,7,C.byref(sp))
    for x in (r,s):
        if x: want+=1; pend+=1
        else: imm+=1
    while done[0]<want:
        if th: time.sleep(0)
        else: L.ucp_worker_progress(w)
    assert dst[0]==b"\x5a"
d=time.time()-t; stop[0]=True
if th: th.join()
print("ucp %d.%d.%d pid %d size %d iters %d us/iter %.1f immediate %d pending %d"%(maj.value,mi.value,rel.value,os.getpid(),a.size,a.iters,d/a.iters*1e6,imm,pend))

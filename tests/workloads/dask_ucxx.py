#!/usr/bin/env python3
"""dask_ucxx.py [MIB]: two Dask workers send each other arrays over UCXX; prints the sum of each round, which is known."""
import os, sys, time
os.environ.update(UCX_TLS=os.environ.get("UCX_TLS","tcp,self,sm"), UCX_NET_DEVICES="lo", DASK_DISTRIBUTED__COMM__UCX__ENVIRONMENT="{}")
os.environ.setdefault("UCX_LOG_LEVEL","error")
import numpy as np
def make(n, i): return np.full(n, i, dtype="u1")
def red(*xs): return int(sum(int(x[0]) for x in xs))
def main():
    import dask
    dask.config.set({"distributed.comm.ucx.create-cuda-context": False, "distributed-ucxx.create-cuda-context": False,
                     "distributed.scheduler.worker-saturation": "inf"})
    from distributed import Client, LocalCluster
    mb=int(sys.argv[1]) if len(sys.argv)>1 else 8
    with LocalCluster(protocol="ucxx", n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True) as c, Client(c) as cl:
        print(cl.scheduler.address, os.getpid(), flush=True)
        ws=list(cl.scheduler_info()["workers"]); t=time.time()
        for r in range(5):
            fs=[cl.submit(make, mb<<20, i+r, workers=[ws[i%2]], pure=False) for i in range(6)]
            print(r, cl.submit(red, *fs, workers=[ws[0]], pure=False).result(timeout=60), flush=True)
        print("sec", round(time.time()-t,2), flush=True)
if __name__=="__main__": main()

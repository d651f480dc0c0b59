"""Two threads pass a byte back and forth as fast as they can. Ends after a minute unless it is killed before."""
import os
import socket
import threading

near, far = socket.socketpair()


def answer():
    while byte := far.recv(64):
        far.send(byte)


threading.Thread(target=answer, daemon=True).start()
end = threading.Timer(60, os._exit, [0])
end.daemon = True
end.start()
print("ready", flush=True)
while True:
    for _ in range(20):
        near.send(b"x")
        near.recv(64)
    sum(i * i for i in range(2000))

"""Two threads hand a byte to and fro, as often as they can, until they are killed, and for a minute at the most."""
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

"""Two threads hand a byte to and fro, some 25,000 thread switches a second, until they are killed."""
import socket
import threading

near, far = socket.socketpair()


def answer():
    while byte := far.recv(64):
        far.send(byte)


threading.Thread(target=answer, daemon=True).start()
print("ready", flush=True)
while True:
    for _ in range(20):
        near.send(b"x")
        near.recv(64)
    sum(i * i for i in range(2000))

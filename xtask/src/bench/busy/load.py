# Four threads that send requests to the web application at port `argv[1]` without a pause.
import http.client
import sys
import threading


def ask():
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    while True:
        for path in ("/list", "/hash/300"):
            connection.request("GET", path)
            connection.getresponse().read()


for _ in range(4):
    threading.Thread(target=ask).start()

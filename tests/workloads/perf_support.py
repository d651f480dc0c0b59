"""Burns CPU time in functions that call each other, with `-X perf`: the interpreter generates code for each and lists it in
/tmp/perf-PID.map. Prints "ready", and runs for five minutes."""
import signal

signal.alarm(300)


def outer():
    while True:
        inner(200000)


def inner(count):
    for number in range(count):
        number * number


inner(1)
print("ready", flush=True)
outer()

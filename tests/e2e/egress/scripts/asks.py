"""Opens connections one after the other: `asks.py COUNT HOST PORT`. Prints the milliseconds of the median."""

import socket
import statistics
import sys
import time


def ask() -> float:
    began = time.monotonic()
    with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=30) as stream:
        stream.sendall(b"x")
        assert stream.recv(1) == b"x"
    return 1_000 * (time.monotonic() - began)


print(statistics.median(ask() for _ in range(int(sys.argv[1]))))

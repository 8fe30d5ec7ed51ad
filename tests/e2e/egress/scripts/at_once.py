"""Opens 2,000 connections before it uses the first: `at_once.py HOST PORT`. Prints how many echo."""

import socket
import sys

address, port = socket.gethostbyname(sys.argv[1]), int(sys.argv[2])
streams = [socket.socket() for _ in range(2_000)]
for stream in streams:
    stream.setblocking(False)
    stream.connect_ex((address, port))


def echoes(stream: socket.socket) -> bool:
    stream.settimeout(30)
    try:
        stream.sendall(b"x")
        return stream.recv(1) == b"x"
    except TimeoutError:
        raise
    except OSError:
        return False


print(sum(map(echoes, streams)))

"""Asks for 10,000 names in a domain: `loop.py DOMAIN`. Prints how many exist."""

import concurrent.futures
import socket
import sys


def exists(number: int) -> bool:
    try:
        socket.getaddrinfo(f"n{number}.{sys.argv[1]}", 443)
    except socket.gaierror:
        return False
    return True


with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(sum(pool.map(exists, range(10_000))))

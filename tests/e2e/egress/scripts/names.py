"""Connects as libraries do that try IPv6 and IPv4: `names.py HOST PORT`."""

import ipaddress
import socket
import sys
import time

host, port = sys.argv[1], int(sys.argv[2])
began = time.monotonic()
found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
assert [family for family, *_ in found] == [socket.AF_INET], found
try:
    socket.getaddrinfo(host, port, socket.AF_INET6)
    raise SystemExit("there is an IPv6 address")
except socket.gaierror:
    pass
socket.create_connection((host, port), timeout=10).close()
assert time.monotonic() - began < 2, "a family without an address was waited for"
print(ipaddress.ip_address(found[0][4][0]).is_global)

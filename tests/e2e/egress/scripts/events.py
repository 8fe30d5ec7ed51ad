"""Hears events word by word, and says so after each: `events.py URL CA`."""

import ssl
import sys
import time
import urllib.request

url, context = sys.argv[1], ssl.create_default_context(cafile=sys.argv[2])
silence, last = 0.0, time.monotonic()
with urllib.request.urlopen(url + "/events", context=context) as events:
    for line in events:
        if not line.startswith(b"data: "):
            continue
        silence, last = max(silence, time.monotonic() - last), time.monotonic()
        print(line[6:].decode().strip(), flush=True)
        urllib.request.urlopen(url + "/heard", context=context).read()
print(f"silence {int(silence)}")

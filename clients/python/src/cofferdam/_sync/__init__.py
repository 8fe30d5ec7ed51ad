# Made from the asynchronous half by tools/unasync.py; change that one.
"""The asynchronous half, from which `_sync` is made."""

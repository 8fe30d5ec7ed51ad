# Generated from the asynchronous half by tools/unasync.py: change that half.
"""The asynchronous half, from which `_sync` is made."""

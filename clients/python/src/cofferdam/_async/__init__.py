"""The asynchronous half, from which `_sync` is made."""

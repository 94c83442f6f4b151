"""Hooks: HTTP servers that the broker tells of events, in signed batches.

Nothing here is imported without ``[[hooks]]``.
"""

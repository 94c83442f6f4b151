"""The API for operators: calls, one table of routes, and the HTTP server.

Calls and their handlers know no transport, so that a command can also make calls within its own process
(:mod:`holdfast.access`). May import ``retained``, ``config`` and the layers below them, but neither ``sessions`` nor
``auth``, except names, bans and the hashing of passwords.
"""

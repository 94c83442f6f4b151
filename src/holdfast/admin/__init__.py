"""The operators' API: calls, one table of routes, and the HTTP server.

Calls and their handlers (``api``) know no transport, so that a command can also make calls within its own process
(:mod:`holdfast.commands.stand_in`). May import everything below but ``sessions``, and of ``identity`` only names, bans
and the hashing of passwords.
"""

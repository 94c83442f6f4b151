"""The API for operators, and the control socket that serves it over HTTP.

Calls and their handlers know no transport, so that a command can also make calls within its own process
(:mod:`holdfast.access`). This package may import the retainer, the storage and the configuration, but nothing of
Sessions.
"""

"""The API for operators, and the control socket that serves it over HTTP.

Calls and their handlers know no transport, so that a command can also make calls within its own process
(:mod:`holdfast.access`). May import ``retained``, ``config`` and the layers below them, but neither ``sessions`` nor
``auth``.
"""

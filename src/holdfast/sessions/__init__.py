"""Connections, Sessions, subscriptions and routing: the Server of the standard, without sockets and without SQL.

The packages, from the top: ``exchange`` (the packets of one Client), ``monitoring``, ``registry`` (all Sessions),
``routing``, ``replays``, ``durable`` (stored Session State), ``session``, ``delivery`` (messages to one Client),
``connection`` and ``state``. Imports go down only; ``limits`` and ``counters`` are below all of them. May import
``retained``, ``storage``, ``auth`` and the layers below them.
"""

"""Connections, Sessions, subscriptions and routing: the Server of the standard, without sockets and without SQL.

From the top: ``exchange`` (the packets of one Client), ``registry`` (all Sessions), ``router``, ``delivery`` (messages
to one Client, and its replays), ``connection`` and ``state``. ``limits`` and ``counters`` are below all of them.
"""

"""The way of an Application Message to one client: queue, window, Packet Identifiers, replays.

A message is encoded once per form, not once per subscriber.
May import the value modules of ``sessions`` and ``wire``.
"""

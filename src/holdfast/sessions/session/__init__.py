"""Session State: everything the broker remembers of one Client [MQTT5-4.1].

A Session exists with or without a Network Connection, and writes its own fields.
May import ``delivery``, ``state`` and, of ``connection``, the link.
"""

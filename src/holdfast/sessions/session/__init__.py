"""Session State: everything the broker remembers of one Client [MQTT5-4.1].

A Session exists with or without a Network Connection. It has a bounded queue, and is a member of groups.
May import ``delivery``, ``state`` and, of ``connection``, the link.
"""

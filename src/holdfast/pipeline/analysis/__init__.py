"""What several jobs find out of messages and changes: kinds of payloads, prefixes, shapes, numbers, and changes.

May import ``report``, ``shapes`` and the packages below them.
"""

"""Follows the changes of retained messages: after a list, without a gap, in bounded memory.

May import ``retained.store``, ``retained.history`` and ``retained.records``; knows no transport.
"""

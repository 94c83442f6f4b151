"""The history of retained messages: every change, the retained messages of any past moment, and their restore.

Entries are written in the same transaction as the change that they describe.
May import ``store``, ``wildcards`` and ``storage``; ``restoring`` also imports ``service`` and the change feed. Knows
no import and no configuration.
"""

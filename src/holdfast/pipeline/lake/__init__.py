"""Delta tables that follow the history: ``changes``, and ``current`` with the retained messages.

May import ``sources``, ``output`` and ``database``.
"""

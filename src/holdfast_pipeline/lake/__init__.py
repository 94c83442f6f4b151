"""Delta tables that follow the history: ``changes``, and ``current`` with the retained messages."""

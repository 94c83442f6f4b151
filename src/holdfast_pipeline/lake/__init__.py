"""Tables of Delta or Iceberg that follow the history: ``changes``, and ``current`` with the retained messages."""

"""Server-sent events: one stream for each caller, with what it asks for.

May import ``retained.changes``, the other packages of ``admin`` except ``http``, and what it tells of.
"""

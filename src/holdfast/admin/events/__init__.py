"""Server-sent events: one stream for each caller, with the kinds that it names.

May import ``retained.changes``, the other packages of ``admin`` except ``http``, and the sources of its events.
"""

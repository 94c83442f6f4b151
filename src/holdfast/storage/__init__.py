"""The durable store: the database, its schema, the revision clock, the readers and the one writer.

``store`` opens and closes all of them; ``sqlite`` and ``postgres`` are the two databases, ``writer`` writes. Of
retained messages and Sessions it knows only the tables.
"""

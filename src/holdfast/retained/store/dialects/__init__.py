"""The SQL of retained messages: common statements, and the dialects of SQLite and Postgres.

A dialect executes statements and returns plain values; it decides nothing.
May import ``wildcards``, ``storage``, and the rows and values of ``retained.store``.
"""

"""The stores of retained messages: rows in SQLite or Postgres, or objects in memory.

A store reads in bounded batches and writes through the one writer.
May import ``wildcards``, ``storage`` and the layers below it; knows no replay, quota, history or import.
"""

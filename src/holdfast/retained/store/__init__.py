"""The stores of retained messages: rows in SQLite or Postgres, or objects in memory.

A store reads in bounded batches and writes through the one writer. It knows no replay, quota, history or import.
"""

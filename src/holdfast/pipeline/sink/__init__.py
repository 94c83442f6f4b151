"""Writing messages into the broker's database from Spark: rows are checked, staged, and merged.

A task that is repeated doubles nothing.
May import ``retained.importing``, ``database`` and ``sources``.
"""

"""Archives of the history: what they cover, how far a stream has come, and the state at a past moment.

An archive is a folder of Parquet files with a manifest.
May import ``output``, ``database`` and ``sources.columns``.
"""

"""The folders that jobs write: where they may write, Parquet and Delta files, checksums.

A job that was killed leaves nothing that looks complete.
May import ``pipeline.errors`` only.
"""

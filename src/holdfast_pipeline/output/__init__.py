"""The folders that jobs write: which folders a job may overwrite, Parquet and Delta files, checksums.

A killed job leaves nothing that looks complete.
"""

"""Readers of files with retained messages: one module for each format, whose ``messages`` gives the entries of a file.

They run in Spark's executors, so nothing here imports Twisted or a database.
May import the values of ``retained.records`` and ``wire``; no other package of the pipeline.
"""

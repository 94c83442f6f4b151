"""Readers of files with retained messages: one module for each format, whose ``messages`` gives the entries of a file.

They run in Spark's executors too, so nothing here imports Twisted or a database.
"""

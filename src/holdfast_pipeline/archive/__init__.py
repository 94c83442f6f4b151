"""Archives of the history: the part of the history that an archive covers, its entries, and states at past moments.

An archive is a folder of Parquet files and a file ``archive.json``.
"""

"""The broker's database as jobs read it: connections, snapshots, and ranges of the history.

All modules only read, except ``confirmation``: that writes one row.
May import ``config``, ``admin``, ``storage`` and ``retained.history``, and of the pipeline only ``errors``.
"""

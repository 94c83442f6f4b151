"""The broker's database as jobs read it: connections, snapshots, and ranges of the history.

Everything here reads; only ``confirmation`` writes, and it writes one row.
May import ``storage`` and ``retained.history``.
"""

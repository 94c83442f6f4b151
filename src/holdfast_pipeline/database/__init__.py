"""Reading the broker's database in jobs: connections, snapshots, and ranges of the history.

All modules only read, except ``confirmation``: that writes one row.
"""

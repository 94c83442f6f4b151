"""Several brokers on one Postgres database: their leases, and what becomes of a member that is dead.

:mod:`.lease` decides what a member may do, without I/O. :mod:`.members` has the statements of joining, renewing and
taking over. :mod:`.membership` does both for this process.
"""

"""The SQLite database: how it is opened, checked, backed up and repaired.

All code that only SQLite needs is in this package, except its statements about retained messages.
May import ``storage.database``, ``storage.driver``, ``storage.schema``, ``storage.layouts`` and
``storage.writing.bulk``; not ``postgres``.
"""

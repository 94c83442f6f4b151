"""The Postgres database: how it is opened and checked, and the meaning of its errors.

All code that only Postgres needs is in this package, except its statements about retained messages.
May import ``storage.database``, ``storage.driver``, ``storage.layouts``, ``storage.url`` and
``storage.writing.bulk``; not ``sqlite``.
"""

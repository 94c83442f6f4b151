"""The Postgres database: how it is opened and checked, and the meaning of its errors.

Code that is true of Postgres only is in this package.
May import ``storage.database``, ``storage.url`` and ``storage.writing.bulk``; not ``sqlite``.
"""

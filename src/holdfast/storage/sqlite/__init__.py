"""The SQLite database: how it is opened, checked, backed up and repaired.

Code that is true of SQLite only is in this package.
May import ``storage.database``, ``storage.schema``, ``storage.tables`` and ``storage.writing.bulk``; not ``postgres``.
"""

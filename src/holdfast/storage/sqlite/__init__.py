"""The SQLite database: how it is opened, checked, backed up and repaired.

Everything that is true of SQLite only stands here.
May import ``storage.database``, ``storage.driver`` and ``storage.tables``.
"""

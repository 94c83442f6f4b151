"""The Postgres database: how it is opened, and what its errors mean.

Everything that is true of Postgres only stands here.
May import ``storage.database`` and ``storage.driver``.
"""

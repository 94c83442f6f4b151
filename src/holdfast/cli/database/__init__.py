"""``holdfast db``: commands on the database as a whole: its backups, its schema, its condition.

May import the same packages as ``cli``.
"""

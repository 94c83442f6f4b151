"""Authentication and authorization: the identity of clients, and their permissions.

Besides the interfaces there are two implementations: anonymous clients, and SCRAM-SHA-256 with a file of users.
May import ``wire.reasons``, ``messages``, ``peers``, and ``config.problems`` and ``config.toml`` for the errors in
files.
"""

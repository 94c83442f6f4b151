"""Authentication and authorization: the identity of clients, and their permissions.

Here are the interfaces, anonymous clients, and files of users. Each way to prove an identity is a package of its own.
May import ``wire.reasons``, ``messages``, ``peers.address``, ``config.problems`` and ``config.toml`` for the errors in
files, and ``config.sections.methods`` for what :mod:`~holdfast.auth.external` builds.
"""

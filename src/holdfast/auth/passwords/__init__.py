"""User Name and Password: files of users, their hashes, and the threads that verify them.

:mod:`holdfast.auth.passwords.hashing_threads` tells what a login costs. May import ``auth.interfaces``,
``auth.user_file``, ``auth.editing``, ``scheduling.periodic`` and ``config.problems``.
"""

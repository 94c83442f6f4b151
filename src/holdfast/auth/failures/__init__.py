"""Failed logins and bans: failures are counted, their answers are delayed, and addresses are banned.

The reasons stand in :mod:`holdfast.auth.failures.failures`. May import ``peers``, ``wire.reasons`` and
``config.problems``.
"""

"""All Sessions by Client Identifier: take-over, expiry, the end of each Session, and restoring after a restart.

May import ``routing``, ``session``, ``delivery``, ``state`` and ``connection``.
"""

"""Replays: the retained messages that match a new subscription, delivered as the client has room for them.

Flow control bounds what all replays together may cost; the change feed keeps them from sending stale values.
May import ``store``; knows no quota, history or import, and no sessions.
"""

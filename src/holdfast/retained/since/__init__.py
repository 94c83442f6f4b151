"""Replays of what has changed since a token: the changed topics are stored, for ``holdfast-replay-since``.

May import ``retained.store`` and ``storage``; knows no Client.
"""

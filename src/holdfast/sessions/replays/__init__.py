"""The replays of one Session on one Network Connection: they are started, resumed, saved and delivered here.

Reading the retained messages is the work of ``holdfast.retained.replay``.
May import ``session``, ``delivery``, ``state`` and ``connection``.
"""

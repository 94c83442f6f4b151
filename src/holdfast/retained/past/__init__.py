"""What replays of the past read: the retained messages of a time, and the changes between two times.

May import ``history``, ``store`` and ``extensions``. ``messages`` is the entrance.
"""

"""``holdfast doctor``: looks for problems before they occur, in the configuration and on the machine.

Each module has the checks of one subject. A check changes nothing, besides a small file that measures the disk and is
deleted at once. May import ``config``, ``storage`` and ``auth``.
"""

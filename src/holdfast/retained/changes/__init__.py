"""What has been: changes since a token or a time, the history, and what follows a list without a gap.

May import ``retained.store``, ``retained.replay`` and the values of ``retained``; knows no transport.
"""

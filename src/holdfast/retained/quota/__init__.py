"""Limits on retained messages: how many, how large and how fast.

``ledger`` refuses or accepts each message before it is stored or delivered; ``limits`` are the configured values.
May import ``retained.store`` and ``storage``; knows no replay, history or import.
"""

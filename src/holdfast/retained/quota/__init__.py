"""Limits on retained messages: how many, how large and how fast.

``ledger`` refuses or accepts each message before it is stored or delivered; ``limits`` are the configured values.
May import the values and tables of ``retained.store``; knows no replay, history or import.
"""

"""Limits on retained messages: how many, how large, how fast, and who is refused.

``ledger`` decides about each message before it is stored or delivered.
May import ``store``; knows no replay, history or import.
"""

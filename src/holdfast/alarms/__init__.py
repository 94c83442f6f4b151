"""Alarms: what is wrong now and what to do, when it began and ended; raised and ended by one periodic look.

Knows no part of the broker. May import ``scheduling``.
"""

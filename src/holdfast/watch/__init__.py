"""What the broker tells: its log, the audit log, alarms, and metrics with their text.

Other rooms count and decide; this room writes, and bounds what it writes. May import ``config`` and the rooms below it.
"""

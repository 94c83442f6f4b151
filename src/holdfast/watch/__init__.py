"""What the broker tells: its log, the audit log, alarms, and metrics with their text.

Others count and decide; here it is only kept in form and bounds. May import ``config`` and the rooms below it.
"""

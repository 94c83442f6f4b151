"""The audit log: who connected, who was refused, what was denied, and what operators changed. One JSON object a line.

May import ``log``.
"""

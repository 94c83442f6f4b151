"""Reads the parts of the broker for metrics, alarms, the health checks and the ring of recent figures.

May import all parts that it reads, and ``metrics`` and ``alarms``.
"""

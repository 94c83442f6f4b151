"""Spark's process: its session, its Java, its console, its signals and its errors.

``session`` is the entrance.
May import ``sources`` to register them.
"""

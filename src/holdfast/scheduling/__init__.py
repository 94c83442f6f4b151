"""When work is done: the clock, rates, deadlines, periodic jobs, and long work in portions.

May import ``log``.
"""

"""``holdfast retainer``: commands on retained messages, their history and their replays.

May import the same packages as ``cli``.
"""

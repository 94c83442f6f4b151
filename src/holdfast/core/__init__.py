"""Values and rules that cross rooms: messages, topics, units, tickets, the User Properties of Holdfast.

Knows no I/O and no clock. May import ``wire``.
"""

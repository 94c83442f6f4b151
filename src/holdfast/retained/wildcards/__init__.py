"""How a Topic Filter with wildcards becomes a bounded search of the topics in a database.

Everything here is pure: no I/O, no clock.
May import ``topics`` only.
"""

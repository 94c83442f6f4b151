"""The whole broker: ``compose`` builds it from its configuration, ``service`` starts and stops it in order.

The modules are named for the room that they build or read: ``identity``, ``sessions``, ``listeners``, ``admin``,
``watch``.
"""

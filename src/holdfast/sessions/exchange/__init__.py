"""What an admitted client and the broker say to each other: publishing, subscribing, acknowledging.

One module for each direction and packet family.
May import ``connection``, ``session``, ``delivery`` and ``routing``.
"""

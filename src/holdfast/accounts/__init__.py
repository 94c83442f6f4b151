"""Users, and rules of what clients may do, in the broker's own database.

``Users`` and ``Rules`` keep them in memory, change them through the writer, and tell who is affected. ``Following``
notices the changes of other nodes. ``DatabaseUsers`` is the authentication method. May import ``auth``,
``authorization``, ``scheduling``, ``storage`` and values.
"""

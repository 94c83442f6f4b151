"""The routing of a published Application Message to the Sessions whose subscriptions match it.

``router`` sends messages on, ``routing_table`` finds the Sessions; shared subscriptions and Wills are here too.
May import ``session``, ``delivery``, ``state``, ``auth`` and the retainer's entrance.
"""

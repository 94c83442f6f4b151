"""From a published Application Message to the Sessions whose subscriptions match it.

Shared subscriptions and Will Messages are here too.
May import ``session`` and ``delivery``.
"""

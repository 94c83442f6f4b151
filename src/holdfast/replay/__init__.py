"""Replays: the retained messages that match a new subscription, delivered while the client has room for them.

``registry`` starts them, ``replay`` is one of them, ``pace`` bounds the cost of all of them together. A replay reads
``retained.store``, or a source that ``changes`` makes. This room knows no quota, no import and no Session.
"""

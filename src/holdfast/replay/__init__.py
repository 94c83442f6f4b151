"""Replays: the retained messages that match a new subscription, delivered while the client has room for them.

``registry`` starts them, ``replay`` is one of them, ``pace`` bounds the cost of all of them together. May import the
values, slices and interfaces of ``retained.store``; knows no quota, history, import or session.
"""

"""Retained messages: their store, limits, replays to new subscribers, history and import.

``service`` is the entrance: sessions use it and nothing below it; ``administration`` is the entrance for operators.
May import ``storage`` and the layers below it; only ``configured`` reads ``config``.
"""

"""Retained messages: their store, limits, replays to new subscribers, history and import.

``service`` is the entrance: sessions use it and nothing below it; ``administration`` is the entrance for operators.
May import ``storage`` and the value modules; only ``configured`` reads ``config``.
"""

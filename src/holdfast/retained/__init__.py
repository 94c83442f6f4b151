"""Retained messages: how they are stored, limited, replayed to new subscribers, recorded and imported.

``service`` is the entrance: sessions use it and nothing below it; ``administration`` is the entrance for operators.
May import ``storage`` and the value modules; only ``configured`` reads ``config``.
"""

"""Retained messages: their store, limits, replays to new subscribers, history and import.

``service`` is the entrance: Sessions use it and nothing below it; ``administration`` is the entrance for operators.
``store`` has the rows of now, ``changes`` what has been, ``replay`` brings both to subscribers. Only ``configured``
reads ``config``.
"""

"""The broker's own topics under ``$SYS/broker/``: figures, load averages, and sending them.

Figures are measured on demand and cost nothing otherwise.
May import ``registry``, ``routing``, ``session``, ``delivery`` and ``state``, and the retainer.
"""

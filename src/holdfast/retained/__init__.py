"""The retained messages of now: their store, limits, rules, searches and import.

``service`` is where Sessions retain messages; ``administration`` is the entrance for operators. ``store`` has the rows,
and ``feed`` announces each change before its commit. Only ``configured`` reads ``config``.
"""

"""The tables of the configuration file, one module for each.

Each option has its kind, default, help and example beside it.
May import ``topics``, ``scheduling.rates``, and the rest of ``config`` except ``document`` and ``reference``.
"""

"""The tables of the configuration file, one module for each subject.

Each option has its kind, default, help and example beside it. May import the rest of ``config`` except ``document`` and
``reference``.
"""

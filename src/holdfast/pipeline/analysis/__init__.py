"""Columns and tables that several jobs need: kinds of payloads, prefixes, shapes, numbers, and changes.

May import ``report``, ``shapes`` and the packages below them.
"""

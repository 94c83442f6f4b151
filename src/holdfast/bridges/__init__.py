"""Bridges: messages cross between this broker and others, each as a client of both (``[bridges.NAME]``).

Without such a table, nothing of this package is imported.
"""

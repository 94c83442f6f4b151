"""Imports of retained messages: rows are staged first, then a job merges them chunk by chunk.

Between two chunks, the broker does its other work. A job that was killed continues after its last chunk.
May import ``store``, ``quota``, ``fields``, ``records`` and ``service``. Spark's workers import ``staging``,
``staging_areas``, ``verdicts`` and ``jobs``, so these four import no Twisted.
"""

"""Imports of retained messages: rows are staged first, then a job merges them chunk by chunk.

The broker serves everybody else between two chunks, and a job that was killed continues after its last chunk.
May import ``store``, ``quota``, ``records`` and ``service``; knows no replay. Spark's workers import ``staging``,
``staging_areas``, ``verdicts`` and ``jobs``, so these four import no Twisted.
"""

"""Deliberate faults: killed processes, failing statements, torn logs, full disks.

Short versions run with all tests. ``make faults`` runs the long versions, prints a table of the results, and ends with
status 1 if the broker broke a promise.
"""

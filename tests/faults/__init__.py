"""Faults on purpose: processes killed, statements that fail, logs that are torn, disks that are full.

Short versions run with all tests; ``make faults`` runs the long ones, prints what it found as a table, and ends with
status 1 if any promise was broken.
"""

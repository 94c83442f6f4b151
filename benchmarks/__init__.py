"""Load generator and bench runner: Holdfast beside mosquitto, in one run, on one machine.

Nothing here is imported by the broker or by its tests.
"""

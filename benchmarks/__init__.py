"""Load generator and benchmark runner: Holdfast and mosquitto in one run, on one machine.

Nothing here is imported by the broker or by its tests.
"""

"""Load generator and benchmark runner: Holdfast and mosquitto in one run, on one machine.

The broker does not import this package.
"""

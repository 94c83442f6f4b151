"""Metrics: histograms, the description of a metric, their text form for Prometheus, and the ring of recent figures.

Knows no part of the broker. May import ``scheduling``.
"""

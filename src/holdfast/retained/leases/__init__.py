"""Leases: retained messages that stay only while their publisher does. It may import what ``retained`` may.

The book knows the leases of this node by topic and by client; the rows survive the process. When they end is decided in
``sessions.routing.leases``.
"""

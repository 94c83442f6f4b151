"""Puts a changed configuration into effect while the broker runs: all of it that can change, or nothing.

May import ``config``, ``service_manager`` and ``log``.
"""

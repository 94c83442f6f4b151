"""Calls about the broker as a whole."""

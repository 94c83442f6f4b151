"""Calls about the broker itself: metrics, health, alarms and recent figures."""

"""Calls by which people log in at the dashboard, and log out."""

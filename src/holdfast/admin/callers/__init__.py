"""Callers of the API, and their permissions. Imports nothing of the API."""

"""Columns and tables that several jobs need: kinds of payloads, prefixes, shapes, numbers, and changes."""

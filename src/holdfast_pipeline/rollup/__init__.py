"""Typed values from the changes of a lake, and their figures for each minute, hour and day."""

"""Retained messages: where they are kept, what may be kept, and how they reach new subscribers."""

"""The history of retained messages: every change, the state at any past moment, and the way back to it.

Entries are written in the same transaction as the change that they describe.
May import ``store``; knows no replay or import.
"""

"""Compare-and-set: changes that are stored only if the present message of their topic meets conditions.

The decision is part of the transaction that stores the change. It may import what ``retained.store`` may.
"""

"""Reads of operators that look at many rows: searches, counts, the largest or newest messages, levels of the tree.

Each read looks at a bounded number of rows and says where to go on. May import the layers below ``sql``.
"""

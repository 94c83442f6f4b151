"""Topic Filters in jobs: the requested filters, the topics they match, and the cost of replays.

Only ``matching`` knows Spark, and only ``session_filters`` reads a database.
"""

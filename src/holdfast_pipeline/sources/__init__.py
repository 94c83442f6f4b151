"""The formats that Spark reads: ``retained``, ``retained_history`` and ``retained_files``.

The database evaluates a condition only where it gives exactly the same result as Spark.
"""

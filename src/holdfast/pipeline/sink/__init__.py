"""Writing messages into the broker's database from Spark: tasks check and stage rows, then the driver merges them.

A repeated task adds nothing twice, because the merge names the task attempts that count.
May import ``retained.import_jobs``, ``retained.staging``, ``commands``, and the pipeline's ``database``, ``sources``
and ``output``. Workers import all modules of this package, so none imports Twisted.
"""

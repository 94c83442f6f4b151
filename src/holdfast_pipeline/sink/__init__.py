"""Writing messages into the broker's database from Spark: tasks check and stage rows, then the driver merges them.

A repeated task adds nothing twice, because the merge names the task attempts that count.
"""

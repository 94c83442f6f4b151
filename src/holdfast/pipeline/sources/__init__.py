"""What Spark reads: ``format("retained")``, ``format("retained_history")`` and ``format("retained_files")``.

Conditions that the database can check exactly are checked there.
May import ``database`` and ``formats``.
"""

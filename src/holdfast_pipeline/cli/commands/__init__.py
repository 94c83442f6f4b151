"""The subcommands of ``holdfast-pipeline``.

Each checks its options, starts Spark, runs its job and prints the result.
"""

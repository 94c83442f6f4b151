"""Judges retained messages as columns of Spark: by the rules of ``check``, and beside their siblings by none."""

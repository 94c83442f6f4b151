"""The jobs, one module for each command: a function that takes a Spark session and returns a value with its figures.

The command line calls them, and any program may. Only ``publish`` needs no Spark.
"""

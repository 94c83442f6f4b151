"""Benchmarks of the data pipeline, beside plain Python, and of a broker that merges an import meanwhile."""

"""Databases to try the pipeline with: a day of retained messages of a home or of a plant, with known faults."""

"""A day of a building: sample data for the pipeline, made by a broker and simulated devices."""

"""A day of a building: data to try the pipeline on, made by a broker and simulated devices."""

"""The jobs: each takes a Spark session and says what it did. The command line calls them; so may anybody."""

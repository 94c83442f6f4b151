"""The data pipeline beside plain Python that does the same work, and a broker that has an import merged meanwhile."""

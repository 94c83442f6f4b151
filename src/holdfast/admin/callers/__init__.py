"""Who makes a call, and what this caller may do. Imports nothing of the API."""

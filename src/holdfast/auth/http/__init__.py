"""Users by a service that answers HTTP requests, and the bounded HTTP client for it. Imported only if it is configured.

May import what ``auth`` may import.
"""

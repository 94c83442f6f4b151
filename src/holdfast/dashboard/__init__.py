"""The dashboard: static files for a browser, which use the admin API. Has no code of the broker."""

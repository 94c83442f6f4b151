"""Users by signed tokens (JSON Web Tokens), and the keys that verify them. Imported only if it is configured.

May import ``auth.http`` for keys from a server, besides what ``auth`` may import.
"""

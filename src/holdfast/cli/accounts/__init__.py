"""Commands on users, rules, bans and API keys, in files and in the database.

May import the same packages as ``cli``.
"""

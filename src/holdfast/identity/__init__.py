"""Who connects, and what they may do: methods of authentication, failed logins, bans, users, API keys, rules.

``chain`` asks the methods in their order, ``authorizer`` answers for what is connected. May import ``storage`` and the
rooms below it.
"""

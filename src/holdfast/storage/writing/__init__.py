"""The one writer: every durable change goes through it, many changes in one transaction.

Each change has a commit ticket that is settled when the change is durable or refused.
May import ``storage.driver`` and the revision clock; knows no particular database.
"""

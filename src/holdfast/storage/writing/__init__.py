"""The one writer: it commits every durable change, many changes in one transaction.

Each change has a commit ticket, which is settled when the change is durable or has failed.
May import ``storage.driver``, ``storage.executor`` and ``storage.revisions``; knows no particular database.
"""

"""Importing retained messages from elsewhere: rows are staged first, then merged chunk by chunk.

A merge yields to live messages after every chunk, and a job that was killed goes on where it stopped.
May import ``store``, ``quota`` and ``history``; knows no replay.
"""

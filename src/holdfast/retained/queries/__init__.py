"""Operators' questions about retained messages: levels of the topic tree, searches, sorted lists, counts.

Each question is answered in parts of bounded cost. May import ``store`` and the layers below it.
"""

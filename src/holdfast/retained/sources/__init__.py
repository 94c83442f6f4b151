"""The sources of retained messages: whether the publisher of a message may still retain it.

``source_check`` judges the messages of a replay, ``survey`` all stored messages once for each state of the rules.
May import the values, slices and interfaces of ``retained.store``; knows no replay, quota, history or authorizer.
"""

"""Traces: the packets of one Client, written for an operator.

May import the packages of ``sessions`` below it.
"""

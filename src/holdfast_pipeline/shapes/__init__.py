"""Shapes of topics: ``hq/{floor}/{room}/light/{lamp}/state`` stands for thousands of topics that are alike.

:class:`Learner` finds the shapes of given topics, :class:`Shapes` tells the shape of a topic. Pure: no Spark, no I/O.
"""

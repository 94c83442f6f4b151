"""Judge retained messages as columns of Spark: by the rules of ``check``, and beside their siblings without any rule.

May import ``analysis``, ``checks`` and the packages below them.
"""

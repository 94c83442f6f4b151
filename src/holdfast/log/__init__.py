"""The log: limits on the lines that clients cause, failures that last, texts made when wanted, reopened files.

May import ``terminal_text``.
"""

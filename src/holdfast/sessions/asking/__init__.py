"""Questions of Clients about retained messages: how they are read, and what their answers look like.

May import ``retained``, ``extensions`` and the layers below them.
"""

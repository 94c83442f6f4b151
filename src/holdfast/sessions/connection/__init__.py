"""One Network Connection: from CONNECT to its end.

It keeps packets in order, admits clients and bounds what waits to be sent; it holds no Session State.
May import ``session`` and ``delivery``.
"""

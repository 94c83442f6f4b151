"""The packets of one Client from CONNECT to DISCONNECT: admission, publishing, subscribing, acknowledging.

One module for each direction and packet family; ``admission`` stands above the others.
The top of ``sessions``: may import all its other packages.
"""

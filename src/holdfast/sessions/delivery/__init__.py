"""The steps of one Application Message to one Client: encoding, queue, window, Packet Identifiers, acknowledgement.

A message is encoded once per form, not once per subscriber.
May import ``state`` and, of ``connection``, the link.
"""

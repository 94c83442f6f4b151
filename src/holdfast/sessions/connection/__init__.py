"""One Network Connection: bytes to packets, packets in order, answers in order, and its end.

It knows no Session and no policy: its creator gives it the function that admits Clients, and all other packages of
``sessions`` use it through ``client_link.Connection``.
May import no other package of ``sessions``.
"""

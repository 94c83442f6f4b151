"""How commands and jobs reach the retained messages: through the running broker, or in its place where none runs.

Callers make the same calls either way, those of the API, and get the same answers. The client of the control socket
(:mod:`holdfast.access.client`) imports no Twisted; the stand-in for a broker builds its parts with
:mod:`holdfast.compose`.
"""

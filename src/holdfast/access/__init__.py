"""How commands and jobs reach the retained messages: through the running broker, or in its place if none runs. Callers
make the API's calls in both cases, and get the same answers. The client of the control socket
(:mod:`holdfast.access.client`) imports no Twisted; the stand-in for a broker builds its parts with
:mod:`holdfast.compose`. May import ``compose`` and the layers below it.
"""

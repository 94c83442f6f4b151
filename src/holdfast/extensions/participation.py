"""How a client agrees to take part: User Property ``holdfast`` = ``?`` in CONNECT, answered in CONNACK."""

from __future__ import annotations

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import OFFERED, PARTICIPATION, VERSION
from holdfast.wire import Properties

#: what a client sends
QUESTION = "?"
#: what CONNACK answers
ANSWER = (PARTICIPATION, f"{VERSION} {','.join(OFFERED)}")


def takes_part(connect: Properties) -> bool:
    """Tell whether a client asks to take part. Raises :class:`BadRequest` if it asks twice, or for something else."""
    values = [value for name, value in connect.user_properties if name == PARTICIPATION]
    if len(values) > 1:
        raise BadRequest(f"User Property {PARTICIPATION} is given {len(values)} times, and once is allowed")
    if values and values[0] != QUESTION:
        raise BadRequest(f"User Property {PARTICIPATION} can only be {QUESTION} in CONNECT")
    return bool(values)

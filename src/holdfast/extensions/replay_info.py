"""What a participant may ask to be told of each replayed message: when it was stored, its revision, its publisher."""

from __future__ import annotations

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.names import PREFIX, PUBLISHER, REPLAY_INFO, REVISION, STORED_AT

#: what the request names; each stands for a User Property of its name behind the prefix
STORED_AT_FACT, REVISION_FACT, PUBLISHER_FACT = (name.removeprefix(PREFIX) for name in (STORED_AT, REVISION, PUBLISHER))
#: all facts, in the order of the User Properties of a message
FACTS = (STORED_AT_FACT, REVISION_FACT, PUBLISHER_FACT)

#: facts in the order of :data:`FACTS`; none for a replay that tells none
Facts = tuple[str, ...]


def facts_in(text: str) -> Facts:
    """Return the facts in a value of the User Property. Raises :class:`BadRequest`."""
    asked = text.split(",")
    if len(asked) > len(FACTS) or len(set(asked)) != len(asked) or not set(asked) <= set(FACTS):
        raise BadRequest(f"User Property {REPLAY_INFO} has one or more of {', '.join(FACTS)}, each once, with commas")
    return tuple(fact for fact in FACTS if fact in asked)


def text_of(facts: Facts) -> str:
    """Return the text that :func:`facts_in` reads."""
    return ",".join(facts)

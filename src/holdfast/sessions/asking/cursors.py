"""The places where answers ended, as Clients get them: ``after``.

How it works. A Client may know the topic of a message that it was told of: the place is that topic, behind ``=``, and
holds for any time. Another place may be a topic that the Client may not know. It is encrypted, behind ``~``, with a key
of this process, and bound to its question: so it tells nothing, and holds until the broker ends.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.questions import Question
from holdfast.retained.queries.permitted import Place

_TOLD, _SEALED = "=", "~"
_KEY, _NONCE = 32, 12


class Cursors:
    """Makes and reads ``after``."""

    def __init__(self) -> None:
        self._key = os.urandom(_KEY)

    def shown(self, place: Place | None, question: Question) -> str | None:
        """Return what the answer says; None at the end."""
        if place is None:
            return None
        if place.told:
            return _TOLD + place.topic
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # only here: most brokers need none

        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, place.topic.encode(), _bound(question))
        return _SEALED + urlsafe_b64encode(sealed).decode()

    def read(self, question: Question) -> str:
        """Return the topic to go on after, "" for the beginning. Raises :class:`BadRequest`."""
        text = question.after
        if not text or (text.startswith(_TOLD) and "\0" not in text):
            return text[1:]
        place = self._opened(text, question) if text.startswith(_SEALED) else None
        if place is None:
            raise BadRequest("after is what the last answer to the same question said, from this run of the broker")
        return place

    def _opened(self, text: str, question: Question) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = urlsafe_b64decode(text[1:].encode())
            opened = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(question))
        except (ValueError, InvalidTag):
            return None
        return opened.decode()


def _bound(question: Question) -> bytes:
    return f"{question.kind} {question.topic_filter}".encode()

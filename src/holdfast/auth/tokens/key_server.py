"""The keys that a server publishes as a JSON Web Key Set, fetched when a token needs them.

How it works. There is no timer. A token asks for the keys, and their age decides:

    no keys yet, or older than ``keep``       the token waits for a fetch; without keys it cannot be judged
    older than ``refresh``                    a fetch begins; the present keys judge the token meanwhile
    the Key ID of the token is unknown        the token waits for a fetch, since the issuer may have new keys
    otherwise                                 the present keys judge it

All tokens that wait share one fetch. A fetch begins at the earliest :data:`PAUSE` seconds after the one before, so that
tokens with invented Key IDs cost the server nothing; such a token is then judged by the present keys, and denied. A
fetch that fails leaves the present keys, for at most ``keep`` seconds: a key that the issuer has withdrawn must not
count for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.auth.http.client import Answer, HTTPClient, RequestFailed
from holdfast.auth.tokens.key_sources import KeyRing, NoKeys
from holdfast.auth.tokens.keys import Key, UnusableKey
from holdfast.log.lasting_failure import LastingFailure

#: seconds between the beginnings of two fetches
PAUSE = 30.0

_ACCEPTED = {"Accept": "application/json, application/jwk-set+json"}


@frozen
class Freshness:
    """Seconds after which keys are fetched again, and after which they do not count any more."""

    refresh: float = 300.0
    keep: float = 86400.0


class ServedKeys:
    """The keys of one server. ``parse`` makes keys of its document, and raises UnusableKey."""

    def __init__(
        self,
        client: HTTPClient,
        parse: Callable[[bytes], Sequence[Key]],
        clock: IReactorTime,
        url: str,
        freshness: Freshness = Freshness(),
    ) -> None:
        self._client = client
        self._parse = parse
        self._clock = clock
        self._freshness = freshness
        self._ring: KeyRing | None = None
        self._fetched_at = 0.0
        self._begun_at: float | None = None
        self._waiting: list[Deferred[None]] | None = None  #: None while no fetch is under way
        self._failures = LastingFailure(
            f"fetching the keys for tokens from {url}", "and is tried again", (RequestFailed, UnusableKey)
        )

    def ring(self, kid: str | None) -> KeyRing | NoKeys | Deferred[KeyRing | NoKeys]:
        """Return the keys to judge a token with this Key ID, at once or after a fetch."""
        ring = self._present()
        if ring is not None and ring.knows(kid):
            if self._clock.seconds() - self._fetched_at >= self._freshness.refresh:
                self._fetch()
            return ring
        waiting = self._fetch()
        if waiting is None:
            return self._outcome()
        fetched: Deferred[None] = Deferred(lambda one: waiting.remove(one) if one in waiting else None)
        waiting.append(fetched)
        return fetched.addCallback(lambda _: self._outcome())

    def _present(self) -> KeyRing | None:
        """Return the keys that count now."""
        if self._ring is not None and self._clock.seconds() - self._fetched_at >= self._freshness.keep:
            self._ring = None
        return self._ring

    def _outcome(self) -> KeyRing | NoKeys:
        ring = self._present()
        return ring if ring is not None else NoKeys("the keys for tokens could not be fetched")

    def _fetch(self) -> list[Deferred[None]] | None:
        """Begin a fetch, unless one is under way or began just before. Return who waits; None if there is no fetch."""
        now = self._clock.seconds()
        if self._waiting is not None:
            return self._waiting
        if self._begun_at is not None and now - self._begun_at < PAUSE:
            return None
        self._begun_at = now
        waiting = self._waiting = []
        answer = self._client.request(b"GET", _ACCEPTED)
        answer.addCallback(self._take).addErrback(self._failed)
        answer.addCallback(lambda _: self._tell())
        return waiting if self._waiting is not None else None

    def _take(self, answer: Answer) -> None:
        if answer.status != 200:
            raise RequestFailed(f"the status {answer.status}")
        self._ring = KeyRing(self._parse(answer.body))
        self._fetched_at = self._clock.seconds()
        self._failures.succeeded()

    def _failed(self, failure: Failure) -> None:
        self._failures.failed(failure)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.callback(None)

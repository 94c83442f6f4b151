"""What SUBSCRIBE and UNSUBSCRIBE share: both may be long, and so may be their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.python.failure import Failure

from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.session.session import Session
from holdfast.wire import ReasonCode, encode
from holdfast.wire.packets import Suback, Unsuback


class LongPackets:
    """Works on the long packets of one Client in portions."""

    def __init__(self, link: IClientLink, session: Session, parts: BrokerParts) -> None:
        self._link = link
        self._session = session
        self._parts = parts

    def in_portions(self, steps: Iterator[int], then: Callable[[], None]) -> None:
        """Do long work for this Client, then call ``then``, unless the connection has ended meanwhile."""
        link = self._link
        done = self._parts.long_work.do(self._session.client_id, steps)
        if done is None:
            if not link.is_closed:
                then()
            return

        def error_of(failure: Failure) -> BaseException:
            return failure.value or RuntimeError(failure.getErrorMessage())

        def go_on(error: BaseException | None) -> None:
            if error is not None:  # the connection handles it, like an error that is raised at once
                raise error
            then()

        link.wait_for(done.addErrback(error_of), None, go_on)

    def can_answer(self, answer: Suback | Unsuback) -> bool:
        """Tell whether the Client accepts an answer of this size. If not, end its connection [MQTT5-3.1.2-24]."""
        # Asked before the first change: a change without an answer would leave the Client in doubt. Checked with the
        # codes 0, since all codes take one byte.
        link = self._link
        if link.maximum_packet_size is None or link.explanations.fits(encode(answer, 5)):
            return True
        link.close(ReasonCode.PACKET_TOO_LARGE, "the answer would exceed the Maximum Packet Size")
        return False

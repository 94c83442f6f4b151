"""The broker's own topics, ``$SYS/broker/...``: its figures, sent to their subscribers.

The values are kept here, not in the retained store. They are sent with QoS 0 past the Sessions' queues and windows, so
that watching the broker changes neither its state nor its counters.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.messages import ApplicationMessage
from holdfast.scheduling.long_work import LongWork, Meter
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.routing.router import Router
from holdfast.sessions.session.session import Session
from holdfast.topics import SYS_PREFIX, has_wildcard, matches

_ROOT = f"{SYS_PREFIX}broker/"
#: values that are sent in one step of long work: each takes some microseconds
_DELIVERIES_PER_STEP = 20
#: comparisons with a Topic Filter that take as long as a delivery
_COMPARED_FOR_A_DELIVERY = 10


class SysTopics(Service):
    """Publishes the figures that have changed, every ``interval`` seconds (0 for never).

    ``measure`` returns all figures by their topics below ``$SYS/broker/``. They are sent in portions
    (:mod:`holdfast.scheduling.long_work`), since many may watch.
    """

    def __init__(
        self,
        *,
        clock: IReactorTime,
        work: LongWork,
        router: Router,
        measure: Callable[[], Mapping[str, str]],
        interval: float,
    ) -> None:
        self._work = work
        self._router = router
        self._measure = measure
        self._clock = clock
        self._interval = interval
        self._values: dict[str, OutgoingMessage] = {}
        self._publishing = self._job()

    def _job(self) -> PeriodicJob:
        return PeriodicJob(
            self._publish, name="publishing the broker's own topics", interval=self._interval, clock=self._clock
        )

    def startService(self) -> None:
        """Begin to publish, the first time at once."""
        Service.startService(self)
        if self._interval:
            self._publishing.start()

    def stopService(self) -> None:
        """Stop publishing."""
        Service.stopService(self)
        self._publishing.stop()

    def change_interval(self, interval: float) -> None:
        """Publish every ``interval`` seconds from now on, 0 for never."""
        if interval == self._interval:
            return
        self._publishing.stop()
        self._interval = interval
        self._publishing = self._job()
        if interval and self.running:
            self._publishing.start(interval)

    def tell(self, session: Session, link: IClientLink, keys: Iterable[str]) -> Iterator[int]:
        """Send new subscriptions the present values that they match, in steps, as long as the connection lasts.

        The values have RETAIN 1, as retained messages have.
        """
        meter = Meter(_DELIVERIES_PER_STEP)
        for key in keys:
            named = self._values.get(key)
            values = tuple(self._values.items()) if has_wildcard(key) else () if named is None else ((key, named),)
            due = meter.add(1 + len(values) // _COMPARED_FOR_A_DELIVERY)
            if due:
                yield due
            for topic, value in values:
                subscription = session.subscriptions.get(key)
                if link.is_closed or subscription is None:
                    break
                if matches(subscription.topic_filter, topic):
                    due = meter.add(1)
                    if due:
                        yield due
                    identifiers = () if subscription.identifier is None else (subscription.identifier,)
                    checked = self._router.table.is_checked(session, subscription)
                    self._deliver(session, value, DeliveryOptions(0, True, identifiers), checked)

    def announce(self, topic: str, payload: bytes) -> None:
        """Send an event to the present subscribers of a topic below ``$SYS/``. It is no value: nobody gets it later."""
        self._work.do(self, self._announce_in_steps(OutgoingMessage(ApplicationMessage(topic, payload, 0, False))))

    def _announce_in_steps(self, event: OutgoingMessage) -> Iterator[int]:
        yield from self._send_all(event, 0)

    def _publish(self) -> Deferred[None] | None:
        return self._work.do(self, self._publish_in_steps())

    def _publish_in_steps(self) -> Iterator[int]:
        sent = 0
        for name, text in self._measure().items():
            topic = _ROOT + name
            payload = text.encode()
            present = self._values.get(topic)
            if present is None or present.message.payload != payload:
                value = self._values[topic] = OutgoingMessage(ApplicationMessage(topic, payload, 0, True))
                sent = yield from self._send_all(value, sent)

    def _send_all(self, value: OutgoingMessage, sent: int) -> Generator[int, None, int]:
        """Send a message to all subscribers, ``sent`` of others before it. Returns how many are sent then."""
        for session, options, checked in self._router.online(value.message.topic):
            if not sent % _DELIVERIES_PER_STEP:
                yield 1
            sent += 1
            self._deliver(session, value, options, checked)
        return sent

    def _deliver(self, session: Session, value: OutgoingMessage, options: DeliveryOptions, checked: bool) -> None:
        self._router.if_allowed(session, value.message, partial(self._send, session, value, options), checked)

    def _send(self, session: Session, value: OutgoingMessage, options: DeliveryOptions) -> None:
        link = session.link
        if link is not None:
            retain = options.retain_as_published
            packet = value.packet(link.protocol_version, 0, retain, options.identifiers, 0, 0)
            if link.maximum_packet_size is None or len(packet) <= link.maximum_packet_size:
                link.send_uncounted(packet)

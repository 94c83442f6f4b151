"""A mirror: an exact copy of the retained messages, through lost connections and restarts of the broker.

``state`` has the payload of each retained message that matches the Topic Filter. ``exact`` is called when a replay has
ended, and told whether it has brought everything ("full") or only what has changed ("delta"). From then on ``state``
follows the broker.

    python -m examples.mirror HOST PORT FILTER
"""

import json
import sys
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions


def properties_of(kind: int, name: str, value: str) -> Properties:
    """Return the properties of a packet with one User Property."""
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    properties.UserProperty = (name, value)
    return properties


def mirror(host: str, port: int, filter_: str, state: dict[str, bytes], exact: Callable[[str], None]) -> mqtt.Client:
    """Return a client that has begun to connect. Run its loop."""
    came: set[str] = set()
    known = ["1970-01-01T00:00:00Z"]  # a time or a token: the replay brings what has changed since then

    def connected(client: mqtt.Client, *_: object) -> None:
        came.clear()
        kept = SubscribeOptions(1, retainAsPublished=True)  # RETAIN 1 tells a change of a retained message
        asked = properties_of(PacketTypes.SUBSCRIBE, "holdfast-replay-since", known[0])
        client.subscribe([("$replay/end", SubscribeOptions(1)), (filter_, kept)], properties=asked)

    def received(_client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        if message.topic == "$replay/end":
            marker = json.loads(message.payload)
            for topic in state.keys() - came if marker["since"] == "full" else ():  # cleared meanwhile
                del state[topic]
            known[0] = marker["token"] or known[0]
            exact(marker["since"])
        elif message.retain:
            came.add(message.topic)
            state[message.topic] = bytes(message.payload)
            if not message.payload:
                del state[message.topic]

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_connect, client.on_message = connected, received
    client.connect(host, port, clean_start=True, properties=properties_of(PacketTypes.CONNECT, "holdfast", "?"))
    return client


if __name__ == "__main__":
    copy: dict[str, bytes] = {}
    told = lambda since: print(since, sorted(copy), flush=True)  # noqa: E731
    mirror(sys.argv[1], int(sys.argv[2]), sys.argv[3], copy, told).loop_forever()

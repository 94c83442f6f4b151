"""A mirror: an exact copy of the retained messages, through lost connections and restarts of the broker.

``state`` has the payload of each retained message that matches the Topic Filter. ``exact`` is called when a replay has
ended; from then on ``state`` follows the broker.

    python -m examples.mirror HOST PORT FILTER
"""

import sys
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions


def mirror(host: str, port: int, topic_filter: str, state: dict[str, bytes], exact: Callable[[], None]) -> mqtt.Client:
    """Return a client that has begun to connect. Run its loop."""
    came: set[str] = set()

    def connected(client: mqtt.Client, *_: object) -> None:
        came.clear()
        kept = SubscribeOptions(1, retainAsPublished=True)  # RETAIN 1 tells a change of a retained message
        client.subscribe([("$replay/end", SubscribeOptions(1)), (topic_filter, kept)])

    def received(_client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        if message.topic == "$replay/end":
            for topic in state.keys() - came:  # cleared meanwhile
                del state[topic]
            exact()
        elif message.retain:
            came.add(message.topic)
            state[message.topic] = bytes(message.payload)
            if not message.payload:
                del state[message.topic]

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_connect, client.on_message = connected, received
    client.connect(host, port, clean_start=True)
    return client


if __name__ == "__main__":
    copy: dict[str, bytes] = {}
    mirror(sys.argv[1], int(sys.argv[2]), sys.argv[3], copy, lambda: print(sorted(copy), flush=True)).loop_forever()

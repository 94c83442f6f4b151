"""A large home: devices of Zigbee2MQTT, Tasmota and ESPHome, and their configurations for Home Assistant.

The topics are those of these programs::

    zigbee2mqtt/NAME, zigbee2mqtt/NAME/availability        sensors and lamps
    tele/PLUG/STATE, tele/PLUG/SENSOR, stat/PLUG/POWER     plugs with Tasmota
    NODE/sensor/temperature/state, NODE/status             boards with ESPHome
    homeassistant/sensor/DEVICE/ENTITY/config              what Home Assistant shows of them
"""

from __future__ import annotations

from holdfast_pipeline.sample.recording import HOUR, MINUTE, Payload, Recording, cut, encoded, iso

_ROOMS = (
    "attic", "bathroom", "bedroom", "cellar", "cinema", "conservatory", "corridor", "dining_room", "garage",
    "guest_room", "hall", "hobby_room", "kitchen", "larder", "laundry", "library", "living_room", "nursery", "office",
    "pantry", "porch", "sauna", "shed", "stairs", "studio", "terrace", "utility_room", "wardrobe",
    "winter_garden", "workshop",
)  # fmt: skip
_LAMPS, _PLUGS, _NODES = 24, 24, 26
_BRIDGE = "zigbee2mqtt"


def home(seed: int, until: int) -> Recording:
    """Return the messages of a home until a time, in milliseconds since the epoch, with its faults."""
    recording = Recording(seed, until)
    _zigbee(recording)
    _tasmota(recording)
    _esphome(recording)
    _left_over(recording)
    return recording


def _zigbee(recording: Recording) -> None:
    chance = recording.chance
    stale, _ = recording.pick(_ROOMS, 2)
    sensors = {f"{room}_climate": room for room in _ROOMS}
    for number, (name, room) in enumerate(sensors.items()):
        address = f"0x00158d00{number + 0x4A5100:08x}"
        for entity, unit in (("temperature", "°C"), ("humidity", "%"), ("battery", "%")):
            told = {"device_class": entity, "unit_of_measurement": unit, "state_topic": f"zigbee2mqtt/{name}"}
            _announce(recording, _BRIDGE, address, name, entity, **told)
        until = recording.until - 9 * HOUR if room == stale else None
        battery, link = chance.randrange(40, 101), chance.randrange(60, 180)
        recording.repeat(_BRIDGE, f"zigbee2mqtt/{name}", _climate(recording, battery, link), 35 * MINUTE, until)
    recording.plant("stale device", f"zigbee2mqtt/{stale}_climate", "its battery has been empty for 9 hours")

    lamps = [f"{room}_lamp" for room in recording.pick(_ROOMS, _LAMPS)]
    (commanded,) = recording.pick(lamps, 1)
    for number, name in enumerate(lamps):
        address = f"0x001788010{number + 0xB30700:07x}"
        topics = {"state_topic": f"zigbee2mqtt/{name}", "command_topic": f"zigbee2mqtt/{name}/set"}
        _announce(recording, _BRIDGE, address, name, "light", "light", **topics)
        recording.publish(_BRIDGE, f"zigbee2mqtt/{name}/availability", encoded(state="online"), recording.set_up)
        recording.repeat(_BRIDGE, f"zigbee2mqtt/{name}", _lamp(recording, chance.randrange(60, 180)), 40 * MINUTE)
    command = f"zigbee2mqtt/{commanded}/set"
    recording.publish("phone-anna", command, encoded(state="ON", brightness=254), recording.until - 3 * HOUR)
    recording.plant("retained command", command, "someone published a command with RETAIN")


def _tasmota(recording: Recording) -> None:
    chance = recording.chance
    plugs = [f"plug_{number:02}" for number in range(1, _PLUGS + 1)]
    lacking, late, lost, broken, commanded = recording.pick(plugs, 5)
    for number, plug in enumerate(plugs):
        mac = f"48551902{number + 0xA0:04X}"
        config = encoded(ip=f"192.168.1.{40 + number}", dn=f"Plug {number + 1}", mac=mac, t=plug, sw="14.3.0", ver=1)
        recording.publish(plug, f"tasmota/discovery/{mac}/config", config, recording.set_up)
        recording.publish(plug, f"tele/{plug}/LWT", "Online", recording.set_up)
        off = 7 * HOUR if plug == late else 0
        total = chance.uniform(20, 400)
        recording.repeat(plug, f"tele/{plug}/STATE", _state(recording, off, chance.randrange(50, 100)), 20 * MINUTE)
        if plug != lacking:
            energy = _energy(recording, off, total)
            recording.repeat(plug, f"tele/{plug}/SENSOR", cut(energy) if plug == broken else energy, 20 * MINUTE)
        recording.repeat(plug, f"stat/{plug}/POWER", recording.one_of("ON", "OFF"), 5 * HOUR)
    recording.plant("malformed payloads", f"tele/{broken}/SENSOR", "its JSON is cut off")
    recording.plant("missing topics", f"tele/{lacking}", "it does not tell its energy in SENSOR, as all others do")
    recording.plant("wrong clock", f"tele/{late}", "its clock is 7 hours late")
    gone = recording.until - chance.randrange(8, 14) * HOUR
    recording.lose_connection(lost, f"tele/{lost}/LWT", "Offline", "Online", gone, 2 * HOUR)
    command = f"cmnd/{commanded}/POWER"
    recording.publish("node-red", command, "OFF", recording.until - 5 * HOUR)
    recording.plant("retained command", command, "an automation published a command with RETAIN")


def _esphome(recording: Recording) -> None:
    chance = recording.chance
    nodes = [f"esp-{room.replace('_', '-')}" for room in recording.pick(_ROOMS, _NODES)]
    misspelling, fahrenheit, text, chatty, twice, stuck, flapping = recording.pick(nodes, 7)
    for node in nodes:
        for entity, unit in (("temperature", "°C"), ("humidity", "%"), ("wifi_signal", "dBm")):
            told = {"unit_of_measurement": unit, "state_topic": f"{node}/sensor/{entity}/state"}
            _announce(recording, node, node, node, entity, availability_topic=f"{node}/status", **told)
        recording.publish(node, f"{node}/status", "online", recording.set_up)

        name = "temprature" if node == misspelling else "temperature"
        shown = _stuck if node == stuck else _degrees(recording, fahrenheit=node == fahrenheit)
        recording.repeat(node, f"{node}/sensor/{name}/state", shown, 15 * MINUTE)
        recording.repeat(node, f"{node}/sensor/humidity/state", recording.about(48, 4), 15 * MINUTE)
        signal = recording.about(chance.randrange(-75, -50), 2)
        recording.repeat(node, f"{node}/sensor/wifi_signal/state", signal, MINUTE if node == chatty else HOUR)
        recording.repeat(node, f"{node}/binary_sensor/motion/state", recording.one_of("ON", "OFF"), 4 * HOUR)
    recording.publish(text, f"{text}/sensor/humidity/state", "nan", recording.until)
    recording.plant("misspelled topic", f"{misspelling}/sensor/temprature/state", "a letter of temperature is left out")
    recording.plant("unusual values", f"{fahrenheit}/sensor/temperature/state", "it measures in °F, all others in °C")
    recording.plant("malformed payloads", f"{text}/sensor/humidity/state", "it says nan in place of a number")
    recording.plant("chatty topic", f"{chatty}/sensor/wifi_signal/state", "it changes every minute, others every hour")
    recording.plant("stuck value", f"{stuck}/sensor/temperature/state", "it says 21.4 all day")
    address = f"{twice}/sensor/ip_address/state"
    recording.share(address, (twice, "192.168.1.91"), ("esp-spare", "192.168.1.92"))
    recording.plant("several publishers", address, "two boards have the same name")
    recording.alternate(flapping, f"{flapping}/binary_sensor/motion/state", ("ON", "OFF"), 300)


def _left_over(recording: Recording) -> None:
    """Add what nobody has cleared: the configurations of a sensor that is gone, and the topics of an old bridge."""
    gone = "0x00158d0003f01b2c"
    for entity in ("temperature", "humidity", "battery"):
        _announce(recording, _BRIDGE, gone, "greenhouse_climate", entity, state_topic="zigbee2mqtt/greenhouse_climate")
    recording.plant("discovery without device", f"homeassistant/sensor/{gone}", "the greenhouse's sensor is gone")
    for topic in ("owntracks/anna/old-phone", "owntracks/anna/old-phone/info"):
        place = encoded(_type="location", lat=51.05, lon=13.74)
        recording.publish("owntracks-old", topic, place, recording.gone)
    recording.plant("orphans", "owntracks/anna/old-phone", "the phone was replaced 40 days ago")


def _announce(
    recording: Recording, client: str, device: str, name: str, entity: str, component: str = "sensor", **told: str
) -> None:
    """Retain the configuration of an entity for Home Assistant."""
    given = {"identifiers": [f"{'zigbee2mqtt_' if client == _BRIDGE else ''}{device}"], "name": name}
    config = encoded(name=entity, unique_id=f"{device}_{entity}", device=given, **told)
    recording.publish(client, f"homeassistant/{component}/{device}/{entity}/config", config, recording.set_up)


def _degrees(recording: Recording, fahrenheit: bool) -> Payload:
    return lambda at: f"{recording.warmth(at) * 1.8 + 32 if fahrenheit else recording.warmth(at):.1f}"


def _stuck(_at: int) -> str:
    return "21.4"


def _climate(recording: Recording, battery: int, link: int) -> Payload:
    def shown(at: int) -> str:
        return encoded(
            battery=battery,
            humidity=round(recording.chance.gauss(48, 4), 1),
            last_seen=iso(at),
            linkquality=link + recording.chance.randrange(10),
            temperature=round(recording.warmth(at), 2),
        )

    return shown


def _lamp(recording: Recording, link: int) -> Payload:
    def shown(at: int) -> str:
        return encoded(
            brightness=recording.chance.randrange(20, 255),
            last_seen=iso(at),
            linkquality=link + recording.chance.randrange(10),
            state=recording.chance.choice(("ON", "OFF")),
        )

    return shown


def _state(recording: Recording, off: int, signal: int) -> Payload:
    def shown(at: int) -> str:
        seconds = (at - recording.set_up) // 1000
        wifi = {"SSId": "home", "RSSI": min(100, signal + recording.chance.randrange(6)), "Channel": 6}
        return encoded(Time=_local(at - off), UptimeSec=seconds, POWER="ON", Wifi=wifi)

    return shown


def _energy(recording: Recording, off: int, total: float) -> Payload:
    def shown(at: int) -> str:
        power = max(0, round(recording.chance.gauss(60, 12)))
        voltage = round(recording.chance.gauss(231, 1.5))
        energy = {"Total": round(total + (at - recording.set_up) / HOUR * 0.06, 3), "Power": power, "Voltage": voltage}
        return encoded(Time=_local(at - off), ENERGY=energy)

    return shown


def _local(at: int) -> str:
    """Return a time as Tasmota tells it, without a zone."""
    return iso(at)[:-1]

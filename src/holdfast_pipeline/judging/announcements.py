"""Find devices that are announced by retained configurations for discovery, and of whose topics none has a message.

A configuration of Home Assistant is the message of ``homeassistant/sensor/DEVICE/ENTITY/config``, and names the topics
of the entity, perhaps in short: ``{"~": "plant/p7", "stat_t": "~/state", "avty_t": "~/status"}``. One of Tasmota is
that of ``tasmota/discovery/MAC/config``: the device has a message in ``tele/DEVICE/LWT``. Where most devices have
messages, those without any are gone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.shaped import Shaped
from holdfast_pipeline.checks.discovered import EXAMPLES, LISTED, Undiscovered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Topics of configurations, also of other programs: they change seldom.
ANNOUNCED = r"^(homeassistant/.+/config|tasmota/discovery/.+|esphome/discover/.+)$"
_CONFIGS = r"\A(homeassistant/([^/]+/){2,3}config|tasmota/discovery/[^/]+/config)\z"
#: The topics of an entity that tell its state, in full and in short.
_TOLD = ("state_topic", "stat_t", "availability_topic", "avty_t", "json_attributes_topic", "json_attr_t")
#: From this share of the devices on, those without messages are no exception.
_EXCEPTIONS = 0.25


def find_undiscovered(shaped: Shaped) -> list[Undiscovered]:
    """Return the devices without messages, those with the most configurations first."""
    if not any(one.example.startswith(("homeassistant/", "tasmota/")) for one in shaped.found.shapes):
        return []
    configs = shaped.messages.where(F.col("topic").rlike(_CONFIGS)).select("topic", F.col("payload").cast("string"))
    named = configs.select("topic", _device().alias("device"), F.explode(_topics()).alias("told"))
    known = shaped.messages.select(F.col("topic").alias("told"), F.lit(True).alias("known"))
    devices = (
        named.join(known, "told", "left")
        .groupBy("device")
        .agg(
            F.bool_or(F.coalesce("known", F.lit(False))).alias("lives"),
            F.count_distinct("topic").alias("configs"),
            F.array_sort(F.collect_set("topic")).alias("topics"),
        )
    )
    return _gone(devices)


def _gone(devices: DataFrame) -> list[Undiscovered]:
    (row,) = devices.agg(
        F.count("*").alias("devices"),
        F.count_if(~F.col("lives")).alias("gone"),
        F.min_by(
            F.struct("device", "configs", F.slice("topics", 1, EXAMPLES).alias("topics")),
            F.when(~F.col("lives"), F.struct(-F.col("configs"), F.col("device"))),
            LISTED + 1,
        ).alias("listed"),
    ).collect()
    if row.gone > max(1, _EXCEPTIONS * row.devices) or row.gone == row.devices:
        return []
    return [Undiscovered(_name(one.device), one.configs, one.topics) for one in row.listed or ()]


def _name(device: str) -> str:
    """Return an identifier, of several ones the first: Spark gives the JSON of an array."""
    try:
        found = json.loads(device)
    except ValueError:
        return device
    return str(found[0]) if isinstance(found, list) and found else device


def _device() -> Column:
    """Return the device of a configuration: by its identifiers, or by the level of the topic that names it."""
    given = [
        F.get_json_object("payload", path)
        for path in ("$.device.identifiers", "$.dev.ids", "$.device.ids", "$.dev.identifiers", "$.t")
    ]
    return F.coalesce(*given, F.get(F.split("topic", "/"), F.lit(2)))


def _topics() -> Column:
    """Return the topics that a configuration names."""
    base = F.coalesce(F.get_json_object("payload", "$['~']"), F.lit(""))
    given = F.array(*(F.get_json_object("payload", f"$.{name}") for name in _TOLD))
    full = F.transform(F.array_compact(given), lambda each: F.replace(each, F.lit("~"), base))
    tasmota = F.concat(F.lit("tele/"), F.get_json_object("payload", "$.t"), F.lit("/LWT"))
    return F.when(F.col("topic").startswith("tasmota/"), F.array(tasmota)).otherwise(full)

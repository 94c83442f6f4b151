"""The shape of a topic is the same, whether Python looks up the topic or Spark makes its form."""

from __future__ import annotations

import random
import uuid

import pytest
from pyspark.sql import SparkSession

from holdfast_pipeline.analysis.shapes import by_form
from holdfast_pipeline.shapes import NO_SHAPE, Learner, Patterns, Shapes

pytestmark = pytest.mark.spark


def _topics(chance: random.Random) -> set[str]:
    """Return topics with numbers of all kinds, also beyond ASCII, and with single names that have numbers."""
    found = {f"site/{place}/dev/{number}/temp" for place in range(6) for number in range(30)}
    found |= {f"hex/{chance.getrandbits(48):012x}/state" for _ in range(40)}
    found |= {f"id/{uuid.UUID(int=chance.getrandbits(128))}/power_{n}" for n in range(3) for _ in range(20)}
    found |= {f"grün/zähler٣{number}/²{number}" for number in range(20)} | {
        f"x{number}y/_0xAB{number}12F" for number in range(9)
    }
    found |= {
        f"plant/{name}/{kind}" for name in ("line1", "hall") for kind in ("pm10", "pm25", "co2", "level", "a-b_7")
    }
    return found | {"/".join(f"l{level}" for level in range(40)), "$SYS/1", "//7", "given/5/a", "given/6/b"}


@pytest.mark.parametrize("patterns", [(), ("given/{x}/#",), ("given/5/{y}", "plant/line1/{kind}")])
def test_the_form_of_a_topic_has_its_shape(spark: SparkSession, patterns: tuple[str, ...]) -> None:
    """For topics that shapes were learned from, and for others."""
    chance = random.Random(7)
    topics = sorted(_topics(chance))
    given, learner = Patterns(patterns), Learner()
    for topic in topics[::2]:
        if len(topic) < 120 and not given.learn(topic):
            learner.add(topic, "number")
    shapes = Shapes(learner.learn(), given)
    found = by_form(spark.createDataFrame([(topic,) for topic in topics], "topic string"), shapes)
    assert found is not None
    assert {row.topic: row.shape for row in found.collect()} == {topic: shapes.number_of(topic) for topic in topics}
    assert len({shapes.number_of(topic) for topic in topics} - {NO_SHAPE}) > 5

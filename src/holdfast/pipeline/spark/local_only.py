"""Spark on one machine keeps to itself: nothing of it can be reached from outside unless its settings say so."""

from __future__ import annotations

import os

#: What is set where nothing else is. Otherwise Spark would show its jobs to whoever asks at port 4040 of any interface,
#: and its driver would listen at the host's own address.
_SETTINGS = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}


def keep_to_this_host() -> None:
    """Start Spark's process, and set it up so that nobody else reaches it where it is the only one that runs tasks.

    To be called before there is a session. A session by Spark Connect is as whoever runs the server wants it.
    """
    if "SPARK_REMOTE" in os.environ:
        return
    from pyspark import SparkContext

    if is_alone(SparkContext.getSystemProperty("spark.master") or ""):
        for key, value in _SETTINGS.items():
            if SparkContext.getSystemProperty(key) is None:
                SparkContext.setSystemProperty(key, value)


def is_alone(master: str) -> bool:
    """Tell whether a master runs its tasks in its own process."""
    return master == "local" or master.startswith("local[")

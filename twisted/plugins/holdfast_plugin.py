"""Lets twistd find Holdfast: strings only, since every run of twistd imports every plugin."""

from twisted.application.service import ServiceMaker

Holdfast = ServiceMaker(
    "Holdfast", "holdfast.tap", "An MQTT broker whose retained messages live in a database.", "holdfast"
)

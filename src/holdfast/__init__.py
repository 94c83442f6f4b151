"""Holdfast: an MQTT 3.1.1 and 5.0 broker whose retained messages live in a database."""

"""The calls that MQTT clients make over HTTP, with the credentials and the rights that they have over MQTT."""

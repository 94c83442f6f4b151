"""Connections, Sessions, subscriptions and routing: what MQTT says a Server does, apart from sockets and storage."""

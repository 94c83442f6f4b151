"""What Holdfast offers beyond MQTT: the names and values of its User Properties.

Values and parsing only, without I/O. It may import ``wire``, ``topics`` and ``strict_json``.
"""

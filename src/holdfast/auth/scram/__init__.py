"""The Authentication Method SCRAM-SHA-256 of MQTT 5, with a file of users.

May import ``auth.interfaces``, ``auth.user_file``, ``auth.editing``, ``log.client_log`` and ``config.problems``.
"""

"""Session State in the database: ``states`` writes it through the one writer, ``loading`` reads it at start.

Tables: ``sessions``, ``session_subscriptions``, ``session_deliveries``, ``session_received``, ``session_messages`` and
``wills``. May import ``state`` and ``storage``; only the composition imports it.
"""

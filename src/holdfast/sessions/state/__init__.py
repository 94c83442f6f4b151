"""Session State and Will Messages as values, and the interface to the store that keeps them.

``interfaces`` is implemented by ``memory`` here and by ``sessions.durable``.
May import no other package of ``sessions``.
"""

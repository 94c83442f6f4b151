"""Decoders: they turn payloads into rows with typed columns. Users add their own, see docs/pipeline/decode.md.

Decoders run in Spark's executors. Only ``messages``, which finds the messages to decode, runs where the job started.
May import ``pipeline.errors`` and ``formatting``; ``messages`` may also import ``sources``, ``archive``, ``database``
and ``output``.
"""

from __future__ import annotations

from holdfast.pipeline.decoding.decoder import BadPayload, Decoder

__all__ = ["BadPayload", "Decoder"]

"""Decoders: they turn payloads into rows with typed columns. Users add their own, see docs/pipeline/decode.md.

Decoders run in Spark's executors. Only ``messages``, which finds the messages to decode, runs where the job started.
"""

from __future__ import annotations

from holdfast_pipeline.decoding.plain_formats import BadPayload, Decoder

__all__ = ["BadPayload", "Decoder"]

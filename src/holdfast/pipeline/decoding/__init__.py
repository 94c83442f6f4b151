"""Decoding: payloads as typed columns. ``Decoder`` is what users add their own with, see docs/pipeline/decode.md."""

from __future__ import annotations

from holdfast.pipeline.decoding.decoder import BadPayload, Decoder

__all__ = ["BadPayload", "Decoder"]

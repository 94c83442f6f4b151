"""Decoders by name: the built-in ones, and those of other packages with an entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from holdfast_pipeline.decoding.decoder import Decoder
from holdfast_pipeline.decoding.json_documents import JsonDocuments
from holdfast_pipeline.decoding.number import NumberDecoder
from holdfast_pipeline.decoding.sparkplug import Sparkplug
from holdfast_pipeline.errors import PipelineError

#: The group of the entry points. Each names a class or a function that is called without arguments.
GROUP = "holdfast.decoders"
_JSON = "json"
BUILT_IN: dict[str, type[Decoder]] = {_JSON: JsonDocuments, "number": NumberDecoder, "sparkplug": Sparkplug}


def decoder_of(name: str, schema: str | None = None) -> Decoder:
    """Return the decoder with a name; only JSON takes a ``schema``. Raises :class:`PipelineError`."""
    if name == _JSON:
        return JsonDocuments(schema)
    if schema is not None:
        raise PipelineError(f"the format {name} has a schema of its own; only {_JSON} takes one")
    return BUILT_IN[name]() if name in BUILT_IN else _installed(name)


def _installed(name: str) -> Decoder:
    known = entry_points(group=GROUP)
    found = [point for point in known if point.name == name]
    if not found:
        names = sorted({*BUILT_IN, *known.names})
        raise PipelineError(
            f"there is no format {name!r}; the formats are: {', '.join(names)}. For another one, install its package "
            "beside holdfast"
        )
    if len({point.value for point in found}) > 1:
        raise PipelineError(f"format {name}: several packages have it: {', '.join(_shown(one) for one in found)}")
    return _made(found[0])


def _made(point: EntryPoint) -> Decoder:
    try:
        decoder = point.load()()
    except Exception as error:  # - an import of another package may raise anything
        raise PipelineError(f"format {point.name}: {_shown(point)} failed: {type(error).__name__}: {error}") from error
    if not isinstance(decoder, Decoder):
        raise PipelineError(f"format {point.name}: {_shown(point)} is not a holdfast_pipeline.decoding.Decoder")
    return decoder


def _shown(point: EntryPoint) -> str:
    return f"{point.value} of {point.dist.name}" if point.dist is not None else point.value

"""Asks the running broker to reload its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.access.client import BrokerClient, ConnectionBroken
from holdfast.access.interfaces import Inaccessible, Refused

if TYPE_CHECKING:
    from holdfast.config import Config

_PATH = "/api/v5/reload"


def reload_broker(config: Config) -> dict[str, Any]:
    """Return what the broker of this data directory has done. With ``problems`` in it, nothing was changed.

    Raises Inaccessible if no broker runs there, or if the reload has failed.
    """
    client = BrokerClient(config)
    if not client.is_there():
        raise Inaccessible(
            f"no broker runs with the data in {config.data_dir}; name its configuration file with --config, or its"
            " data directory with --data-dir"
        )
    try:
        content = client.call("POST", _PATH)
    except ConnectionBroken as broken:
        raise Inaccessible(f"{broken}; see the broker's log for what was changed") from None
    except Refused as refused:
        content = refused.content
        if not isinstance(content, dict) or "problems" not in content:
            raise
    assert isinstance(content, dict)
    return content

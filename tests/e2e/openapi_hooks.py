"""What schemathesis may not do to the broker that it asks: replace its configuration, delete its own API key, or wait.

An empty configuration is valid, and the tool finds the names of keys in answers. Without these hooks it soon talks to a
broker with other settings, or gets 401 for everything.
"""

from __future__ import annotations

from typing import Any

import schemathesis

from holdfast.admin.api.clients import LONGEST_TRACE

#: the name of the API key that the tool uses
OWN_KEY = "own"


@schemathesis.hook
def before_call(_context: Any, case: Any, **_arguments: Any) -> None:
    """Make a replaced configuration a dry run, name another key to be deleted, and trace for a second."""
    match case.method, case.path:
        case "PUT", "/api/v5/configs":
            if isinstance(case.body, dict) and case.body.get("dry_run", False) is False:
                case.body = {**case.body, "dry_run": True}
        case "DELETE", "/api/v5/api_key/{name}":
            if case.path_parameters.get("name") == OWN_KEY:
                case.path_parameters = {"name": f"{OWN_KEY} not"}
        case "GET", "/api/v5/trace":
            seconds = str((case.query or {}).get("seconds", "300"))
            if seconds.isascii() and seconds.isdigit() and 1 <= int(seconds[:18]) <= LONGEST_TRACE:
                case.query = {**(case.query or {}), "seconds": "1"}

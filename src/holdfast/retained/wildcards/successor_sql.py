"""The rule of :meth:`holdfast.retained.wildcards.plan.Plan.successor` as an expression in SQL, for Postgres.

SQLite calls the method itself for each jump. Postgres cannot call into this process, so the rule is a part of the
statement: for ``a/+/c``, "if the third level is not c, then continue at a/LEVEL/c, or behind a/LEVEL".
"""

from __future__ import annotations

from functools import lru_cache

from holdfast.retained.wildcards.plan import AFTER_SEPARATOR

#: The most levels to compare. Later levels are not compared: then a search jumps less far than it could.
_MOST_LEVELS = 16
_NEXT = "visited.topic || chr(1)"


@lru_cache(maxsize=256)
def successor(levels: tuple[str, ...], exact: bool) -> tuple[str, dict[str, str]]:
    """Return the expression and its bound values, for a plan's ``levels`` with a ``+`` among them.

    The expression uses the row ``visited``: a ``topic`` in the plan's ranges, and the array of its ``levels``. The
    ranges have checked the levels before the first ``+`` already.
    """
    cases, bound = [], {}
    first = levels.index("+")
    for position in [at for at, level in enumerate(levels) if at > first and level != "+"][:_MOST_LEVELS]:
        # If this level is passed, the next candidate differs in the last "+" before it.
        wild = max(at for at in range(position) if levels[at] == "+")
        sought, deeper = (f"{_leading(position)} || :{name}{position}" for name in ("level", "below"))
        bound[f"level{position}"] = f"/{levels[position]}"
        further = ""
        if position < len(levels) - 1 or not exact:
            bound[f"below{position}"] = f"/{levels[position]}/"
            further = f"WHEN {deeper} > visited.topic THEN {deeper} "
        cases += [
            f"WHEN cardinality(visited.levels) <= {position} THEN {_NEXT} ",
            f"WHEN '/' || visited.levels[{position + 1}] <> :level{position} "
            f"THEN CASE WHEN {sought} > visited.topic THEN {sought} {further}ELSE {_behind(wild + 1)} END ",
        ]
    if exact:
        cases.append(f"WHEN cardinality(visited.levels) > {len(levels)} THEN {_behind(len(levels))} ")
    return (f"CASE {''.join(cases)}ELSE {_NEXT} END" if cases else _NEXT), bound


def _leading(count: int) -> str:
    return f"array_to_string(visited.levels[1 : {count}], '/')"


def _behind(count: int) -> str:
    """Return the first string behind all topics that begin with the first ``count`` levels."""
    return f"{_leading(count)} || '{AFTER_SEPARATOR}'"

"""Where to go on behind a topic, said in SQL: :meth:`holdfast.retained.wildcards.plan.Plan.successor` for Postgres."""

from __future__ import annotations

from functools import lru_cache

from holdfast.retained.wildcards.plan import AFTER_SEPARATOR

#: Levels compared at most. Those behind them are left unchecked: a search then jumps less far than it could.
_MOST_LEVELS = 16
_NEXT = "visited.topic || chr(1)"


@lru_cache(maxsize=256)
def successor(levels: tuple[str, ...], exact: bool) -> tuple[str, dict[str, str]]:
    """Return an expression, and what to bind for it, for a plan's ``levels`` with a ``+`` among them.

    It is about ``visited``, a row of a ``topic`` in the plan's ranges and of the array of its ``levels``. Those before
    the first ``+`` are known to match.
    """
    cases, bound = [], {}
    first = levels.index("+")
    for position in [at for at, level in enumerate(levels) if at > first and level != "+"][:_MOST_LEVELS]:
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
    """Say what follows the subtree of the first so many levels."""
    return f"{_leading(count)} || '{AFTER_SEPARATOR}'"

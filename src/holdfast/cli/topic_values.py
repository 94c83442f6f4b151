"""Topic Names and Topic Filters on the command line. A wrong one is a wrong command line."""

from __future__ import annotations

from collections.abc import Callable

import click

from holdfast.topics import MOST_LEVELS, InvalidTopicFilter, InvalidTopicName, check_topic_filter, check_topic_name


def topic_filter(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of an argument or an option, if it is a Topic Filter."""
    return _checked(value, check_topic_filter)


def topic_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return the value of an argument or an option, if it is a Topic Name."""
    return _checked(value, check_topic_name)


def _checked(value: str | None, check: Callable[[str, int], None]) -> str | None:
    if value is None:
        return None
    try:
        value.encode()
        check(value, MOST_LEVELS)
    except UnicodeEncodeError:
        raise click.BadParameter("this is not UTF-8") from None
    except (InvalidTopicFilter, InvalidTopicName) as error:
        raise click.BadParameter(str(error)) from None
    return value

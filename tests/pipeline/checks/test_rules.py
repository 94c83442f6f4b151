"""Files of rules: what they mean, and every mistake with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.options import described
from holdfast_pipeline.checks.rule_findings import requirement
from holdfast_pipeline.checks.rule_types import TYPES, PublisherRule, RangeRule, RateRule, SchemaRule
from holdfast_pipeline.checks.rules import read_rules
from holdfast_pipeline.errors import PipelineError

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipeline" / "check.md"


def _read(folder: Path, text: str) -> tuple[object, ...]:
    (folder / "rules.toml").write_text(text, encoding="utf-8")
    return read_rules(folder / "rules.toml")


def test_a_rule_has_the_topics_and_options_of_its_table(tmp_path: Path) -> None:
    text = """
[rules.temperature]
type = "range"
shape = "hq/{floor}/{room}/climate"
path = "$.t"
at_least = -5
at_most = 40.5
by = "floor"
severity = "warning"

[rules.rate]
type = "rate"
filter = "hq/#"
at_most = "6/m"
"""
    (tmp_path / "rules.toml").write_text(text, encoding="utf-8")
    temperature, rate = read_rules(tmp_path / "rules.toml")
    assert (temperature.name, temperature.type, temperature.pattern.topic_filter) == (
        "temperature",
        "range",
        "hq/+/+/climate",
    )
    assert isinstance(temperature.options, RangeRule)
    assert (temperature.options.at_least, temperature.options.path, temperature.options.severity) == (
        -5,
        ("t",),
        "warning",
    )
    assert requirement(temperature) == "a number from -5 to 40.5 at $.t"
    assert isinstance(rate.options, RateRule)
    assert (rate.needs_everything, temperature.needs_everything) == (True, False)
    assert requirement(rate) == "changes of each topic of at most 6 in 1 min, counted over 1 h"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "rules: found 0 rules; allowed: 1 to 500"),
        ("[rule.a]", "1: rule: unknown key; did you mean rules?"),
        ("[rules.a]\nfilter = 'a'", '1: rules.a: has no type; allowed: type = "range" or "schema"'),
        ("[rules.a]\ntype = 'rang'", '2: rules.a.type: found "rang"; allowed: "range"'),
        ("[rules.a]\ntype = 'range'\nat_least = 1", "rules.a.filter: give filter or shape"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a#'\nat_least = 1", "3: rules.a.filter: filter 'a#'"),
        (
            "[rules.a]\ntype = 'range'\nfilter = 'a'\nshape = 'a'\nat_least = 1",
            "4: rules.a.shape: has filter and shape",
        ),
        ("[rules.a]\ntype = 'range'\nshape = 'a/{b'\nat_least = 1", "3: rules.a.shape: pattern 'a/{b'"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'", "rules.a.at_least: give at_least, at_most or both"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'\nat_least = 2\nat_most = 1", "4: rules.a.at_least: is higher than"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'\nat_lest = 2", "4: rules.a.at_lest: unknown key; did you mean"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'\nat_least = nan", "found nan; allowed: a number"),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'\nat_least = 1\npath = 'x'", "5: rules.a.path: 'x' is not a path"),
        (
            "[rules.a]\ntype = 'range'\nfilter = 'a/+'\nat_least = 1\nby = 'b'",
            "by: is no level of the shape; allowed: none",
        ),
        ("[rules.a]\ntype = 'range'\nfilter = 'a'\nat_least = 1\nseverity = 'bad'", 'allowed: "error", "warning" or'),
        ("[rules.a]\ntype = 'schema'\nfilter = 'a'", "rules.a.kind: give kind, schema or schema_file"),
        ("[rules.a]\ntype = 'schema'\nfilter = 'a'\nschema = '{'", "4: rules.a.schema: this is no JSON Schema"),
        ("[rules.a]\ntype = 'schema'\nfilter = 'a'\nschema = '{\"$ref\": 1}'", "$.$ref: this keyword is not checked"),
        (
            "[rules.a]\ntype = 'schema'\nfilter = 'a'\nschema_file = 'no'",
            "4: rules.a.schema_file: there is no such file",
        ),
        ("[rules.a]\ntype = 'enumeration'\nfilter = 'a'", "rules.a.values: name the values"),
        ("[rules.a]\ntype = 'enumeration'\nfilter = 'a'\nvalues = [[]]", "4: rules.a.values: found []"),
        ("[rules.a]\ntype = 'stale'\nfilter = 'a'", "rules.a.at_most: name the time after which"),
        ("[rules.a]\ntype = 'stale'\nfilter = 'a'\nat_most = 5", "found 5; allowed: a duration"),
        ("[rules.a]\ntype = 'stuck'\nfilter = 'a'", "rules.a.at_most: name the greatest time"),
        ("[rules.a]\ntype = 'children'\nfilter = 'a/#'", "3: rules.a.filter: names devices, so without #"),
        ("[rules.a]\ntype = 'children'\nfilter = 'a'\nchildren = ['../b']", '4: rules.a.children: found "../b"'),
        ("[rules.a]\ntype = 'children'\nshape = '{a}'\nchildren = ['{a}/b']", '4: rules.a.children: found "{a}/b"'),
        ("[rules.a]\ntype = 'rate'\nfilter = 'a'\nat_least = '1/d'", "window: is shorter than the time of at_least"),
        ("[rules.a]\ntype = 'rate'\nfilter = 'a'\nat_most = 'infinity'", "allowed: a number of changes"),
        ("[rules.a]\ntype = 'siblings'\nfilter = 'a'\nsiblings = ['+']", '4: rules.a.siblings: found "+"'),
        ("[rules.a]\ntype = 'siblings'\nfilter = 'a'\nsiblings = ['..']", '4: rules.a.siblings: found ".."'),
        ("[rules.a]\ntype = 'siblings'\nfilter = 'a'\nsiblings = ['../']", '4: rules.a.siblings: found "../"'),
        ("[rules.a]\ntype = 'siblings'\nfilter = 'a'\nsiblings = ['b/../c']", "with ../ only at its beginning"),
        (
            "[rules.a]\ntype = 'siblings'\nshape = 'a/{b}'\nsiblings = ['{c}/d']",
            "4: rules.a.siblings: {c} is no level of the shape; allowed: b",
        ),
        ("[rules.a]\ntype = 'time'\nfilter = 'a'", "rules.a.at_most: give the most time"),
        ("[rules.a]\ntype = 'time'\nfilter = 'a'\nat_most = '1m'\ntime_unit = 'h'", 'allowed: "ms", "s" or "us"'),
        ("[rules.a]\ntype = 'publisher'\nfilter = 'a'\nclient_id = 'x{y}'", "{y} is no level of the shape"),
        (
            "[rules.a]\ntype = 'publisher'\nfilter = 'a'\nclient_id = 'x'\nwindow = '1h'",
            "5: rules.a.window: counts only",
        ),
        ("[rules.'ä b']\ntype = 'unique'\nfilter = 'a'", "not a name"),
        ("[rules", "not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_file_line_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError) as raised:
        _read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'rules.toml'}:"), raised.value
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_many_mistakes_are_told_together_and_the_rest_counted(tmp_path: Path) -> None:
    text = "\n".join(f"[rules.r{number}]\ntype = 'range'\nfilter = 'a'" for number in range(9))
    with pytest.raises(PipelineError, match=r"r0.*r4.*and 4 more problems"):
        _read(tmp_path, text)


def test_a_file_that_is_missing_or_a_rule_too_many_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no such file"):
        read_rules(tmp_path / "none.toml")
    text = "\n".join(f"[rules.r{number}]\ntype = 'unique'\nfilter = 'a'" for number in range(501))
    with pytest.raises(PipelineError, match="found 501 rules; allowed: 1 to 500"):
        _read(tmp_path, text)


def test_a_schema_file_stands_beside_the_rules(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    (tmp_path / "rules.toml").write_text("[rules.a]\ntype = 'schema'\nfilter = 'a'\nschema_file = 's.json'")
    (rule,) = read_rules(tmp_path / "rules.toml")
    assert isinstance(rule.options, SchemaRule)
    assert rule.options.schema is not None
    assert rule.options.schema.types == ("object",)
    (tmp_path / "s.json").write_text("[]")
    with pytest.raises(PipelineError, match=r"schema_file: s\.json: \$ is no object"):
        read_rules(tmp_path / "rules.toml")


def test_the_page_describes_every_type_and_key() -> None:
    """The tables of the page have all types of rules, and all keys of each."""
    page = _PAGE.read_text(encoding="utf-8")
    for name, section in TYPES.items():
        rows = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == 1, name
        common = set(described(RangeRule)) & set(described(PublisherRule))
        for key in described(section):
            where = rows[0] if key not in common else page
            assert f"`{key}`" in where, (name, key)


def test_the_first_rules_of_the_page_are_rules(tmp_path: Path) -> None:
    blocks = _PAGE.read_text(encoding="utf-8").split("```toml\n")[1:]
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "climate.schema.json").write_text("{}")
        assert _read(tmp_path, block.partition("```")[0])
    assert {type_ for type_ in TYPES if f'type = "{type_}"' in blocks[1]} == set(TYPES)

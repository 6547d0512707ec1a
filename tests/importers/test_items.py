"""Values are written so that every reader of YAML gets back what was meant."""

from __future__ import annotations

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from e2llm_opt.loading.inventory_items import Item, block, flow, written
from e2llm_opt.loading.yaml_file import parse

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(text=TEXTS)
@example("a\u2028b\x85\x7f\ufeff\U000e0001")
@example("no")
@example("1e9")
@example("=")
def test_any_text_is_read_back_by_us_and_by_others(text: str) -> None:
    for line in (f"key: {written(text)}", f"key: {written({'inner': [text, 'x']})}"):
        value = parse(line)[0].value["key"]
        assert value in (text, {"inner": [text, "x"]})
        assert yaml.safe_load(line)["key"] == value


@given(comment=TEXTS, value=TEXTS)
def test_no_comment_becomes_a_value(comment: str, value: str) -> None:
    item = Item(keys={"name": value, "memory_gib": None}, comments={"": comment, "name": comment})
    lines = "\n".join(["devices:", *block(item, 2)])
    assert parse(lines)[0].value == {"devices": [{"name": value, "memory_gib": None}]}
    assert parse(f"a: {flow(item)}")[0].value == {"a": {"name": value}}

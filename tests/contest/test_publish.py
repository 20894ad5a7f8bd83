"""What participants are given after the rules were changed."""

import dataclasses

from helpers.contest import write_rules
from holdfast.contest.make import PUBLIC, publish_rules
from holdfast.contest.rules import Member, Rules, Vote, read_rules


def test_the_published_rules_follow_and_name_no_hidden_member(tmp_path):
    single, hidden = Member("a", "models/a.onnx", "1" * 64), Member("secret", "models/s.onnx", "2" * 64)
    rules = Rules("c", 3, single, Vote((single, hidden), 2), "signs", "3" * 64, "FD-signs", 5.0)
    write_rules(rules, tmp_path)
    assert publish_rules(tmp_path, rules)
    assert not publish_rules(tmp_path, rules), "nothing changed"
    assert publish_rules(tmp_path, dataclasses.replace(rules, pixels=2000))
    assert "secret" not in (tmp_path / PUBLIC / "rules.toml").read_text()
    seen = read_rules(tmp_path / PUBLIC)
    assert (seen.pixels, seen.mimic.hidden) == (2000, 1)

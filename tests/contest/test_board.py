"""The leaderboard: best and last, ties, history, scores that do not count, and scoring again."""

import dataclasses

import orjson
import pytest

from helpers import tiny_contest as staging
from helpers.contest import write_rules
from helpers.tiny_contest import copied, darkened, entry, quiet
from holdfast.contest import baselines
from holdfast.contest import contest as contests
from holdfast.contest.baselines import BASELINES, enter_baselines
from holdfast.contest.board import board, enter, read_ledger, rescore
from holdfast.contest.contest import open_contest
from holdfast.contest.rules import read_rules
from holdfast.contest.run import score
from holdfast.core.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A contest with baselines, and three zips: weak, strong, and one of team weak that is strong."""
    source = staging.materials(tmp_path_factory.mktemp("materials"))
    place = tmp_path_factory.mktemp("made") / "contest"
    contest = staging.made(place, source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            baselines, "is_installed", lambda name: False
        )  # our attack is tried apart: it takes longer than all of these
        enter_baselines(contest, quiet, jobs=1)
    zips = tmp_path_factory.mktemp("zips")
    return place, {
        "weak": entry(zips / "1", "weak", darkened(place, {1})),
        "strong": entry(zips / "2", "strong", darkened(place)),
        "weak again": entry(zips / "3", "weak", darkened(place)),
    }


@pytest.fixture
def contest(made, tmp_path):
    """A copy of the contest, and a function that enters one of the zips."""
    folder = copied(made[0], tmp_path / "contest")
    opened = open_contest(folder)

    def hand_in(name, **options):
        return enter(folder, made[1][name], score(opened, made[1][name], jobs=1), **options)

    return folder, hand_in


def test_baselines_are_on_the_board_and_identity_is_last(contest, monkeypatch):
    monkeypatch.setattr(baselines, "is_installed", lambda name: False)
    found = board(contest[0])
    by_team = {s.team: s for s in found.standings}
    assert set(by_team) == {f"baseline-{name}" for name in BASELINES}
    assert by_team["baseline-identity"].best.final == 0.0
    assert by_team["baseline-identity"].rank == min(s.rank for s in found.standings if s.best.final == 0.0)
    grey = by_team["baseline-grey"].best.score
    assert grey["changed_pixels"]["most"] <= read_rules(contest[0]).pixels
    assert enter_baselines(open_contest(contest[0]), quiet, jobs=1) == tuple(
        by_team[f"baseline-{name}"].best for name in BASELINES
    ), "those that are there are not scored again"


def test_our_attack_is_a_baseline_where_torch_is(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines, "BASELINES", {})
    contest = staging.made(tmp_path / "c", staging.materials(tmp_path / "m", images=2), images=2)
    (record,) = enter_baselines(contest, quiet, jobs=1)
    assert record.team == "baseline-attack"
    assert record.score["scenarios"]["single"]["S_e"] == 1.0, "white box: every square is gone"
    assert 0 < record.score["changed_pixels"]["most"] <= contest.rules.pixels
    assert not list((tmp_path / "c" / "cache").glob("*attack*")), "what it was made with is gone"
    monkeypatch.setattr(baselines, "is_installed", lambda module: False)
    assert enter_baselines(contest, quiet, jobs=1) == ()


def test_best_and_last_and_history(contest):
    folder, hand_in = contest
    hand_in("weak again")
    hand_in("weak")
    found = next(s for s in board(folder).standings if s.team == "weak")
    assert (found.submissions, found.best.submission, found.last.submission) == (2, 1, 2)
    assert found.best.final > found.last.final
    assert [r.submission for r in board(folder).history if r.team == "weak"] == [1, 2]
    assert (folder / "entries" / "weak" / "002.json").is_file()
    assert (folder / "entries" / "weak" / "002.csv").read_text().startswith("image,changed_pixels")


def test_ties_share_a_rank(contest):
    folder, hand_in = contest
    hand_in("weak again")
    hand_in("strong")
    ranks = {s.team: s.rank for s in board(folder).standings}
    assert ranks["weak"] == ranks["strong"]
    others = sorted(rank for team, rank in ranks.items() if team not in ("weak", "strong"))
    assert ranks["weak"] + 1 not in others, "the rank behind two that share one is left out"


def test_after_a_change_of_rules_scores_are_stale_until_scored_again(contest):
    folder, hand_in = contest
    hand_in("strong")
    rules = read_rules(folder)
    before = board(folder)
    write_rules(dataclasses.replace(rules, distance_max=rules.distance_max * 2), folder)
    stale = board(folder)
    assert (stale.standings, stale.history) == ((), ())
    assert {s.changed for s in stale.stale} == {("rules",)}
    assert len(stale.stale) == 4
    outcomes = rescore(folder, quiet, jobs=1)
    assert {o.team for o in outcomes} == {s.record.team for s in stale.stale}
    after = board(folder)
    assert not after.stale
    assert {s.team for s in after.standings} == {s.team for s in before.standings}
    strong = next(s for s in after.standings if s.team == "strong")
    assert (strong.best.submission, strong.best.number) == (1, 2)
    assert strong.best.final > next(s for s in before.standings if s.team == "strong").best.final
    assert rescore(folder, quiet, jobs=1) == ()
    write_rules(rules, folder)
    assert board(folder) == before, "under the old rules the old scores count again"


def test_a_zip_that_is_gone_or_another_or_no_longer_allowed_is_one_line(contest, tmp_path):
    folder, hand_in = contest
    first, second = hand_in("strong"), hand_in("weak")
    third = hand_in("weak again")
    (folder / first.archive).unlink()
    (folder / second.archive).write_bytes(b"PK")
    rules = read_rules(folder)
    write_rules(dataclasses.replace(rules, pixels=100), folder)
    outcomes = rescore(folder, quiet, jobs=1)
    problems = {o.split(":")[0]: o for o in outcomes if isinstance(o, str)}
    assert "its zip is missing" in problems["strong, submission 1"]
    assert "has changed since it was scored" in problems["weak, submission 1"]
    weak = problems["weak, submission 2"]
    assert "not valid under these rules: advimages/1.png: 144 changed pixels, limit 100" in weak
    assert "(and 5 more problems)" in weak
    assert ("baseline-identity", 1) in {(o.team, o.submission) for o in outcomes if not isinstance(o, str)}
    assert third.path.is_file(), "older scores stay"


def test_other_models_and_other_data_are_named(contest):
    folder, _ = contest
    with (folder / "models" / "wide.toml").open("a") as stream:
        stream.write("# another card\n")
    with (folder / "truth.json").open("a") as stream:
        stream.write("\n")
    assert {s.changed for s in board(folder).stale} == {("models", "data")}


def test_other_code_and_another_feature_net_are_never_ranked_together(contest, monkeypatch):
    folder, _ = contest
    rules = read_rules(folder)
    write_rules(dataclasses.replace(rules, features_sha256="e" * 64, distance="FID"), folder)
    assert {s.changed for s in board(folder).stale} == {("rules", "features")}
    write_rules(rules, folder)
    assert len(board(folder).standings) == len(BASELINES)
    monkeypatch.setattr(contests, "code_of", lambda kind: "f" * 64)
    found = board(folder)
    assert (found.standings, {s.changed for s in found.stale}) == ((), {("code",)})


def test_zips_are_kept_once_or_only_noted(contest, made):
    folder, hand_in = contest
    one, same, noted = hand_in("strong"), hand_in("strong"), hand_in("weak", keep=False)
    assert one.archive == same.archive
    assert (folder / one.archive).read_bytes() == made[1]["strong"].read_bytes()
    assert noted.archive == str(made[1]["weak"])
    assert not (folder / "entries" / "weak" / "zips").exists()


def test_a_spoiled_record_is_named(contest):
    folder, _ = contest
    path = folder / "entries" / "baseline-grey" / "001.json"
    plain = orjson.loads(path.read_bytes())
    del plain["score"]["final"]
    path.write_bytes(orjson.dumps(plain))
    with pytest.raises(InputError, match=r"001\.json: not written by `holdfast contest score`"):
        board(folder)


def test_two_scores_never_take_one_number(contest):
    folder, hand_in = contest
    records = [hand_in("strong") for _ in range(3)]
    assert [r.number for r in records] == [1, 2, 3]
    assert {r.submission for r in records} == {1}, "the same zip again is the same submission"
    assert next(s for s in board(folder).standings if s.team == "strong").submissions == 1
    assert len(read_ledger(folder)) == 3 + 3


def test_a_zip_changed_after_its_score_is_not_kept_as_the_scored_one(contest, made, tmp_path):
    folder = contest[0]
    mine = tmp_path / made[1]["weak"].name
    mine.write_bytes(made[1]["weak"].read_bytes())
    scored = score(open_contest(folder), mine, jobs=1)
    mine.write_bytes(made[1]["weak again"].read_bytes())
    with pytest.raises(InputError, match="changed after it was scored"):
        enter(folder, mine, scored)
    assert not [r for r in read_ledger(folder) if r.team == "weak"]
    assert not list(folder.glob("entries/weak/zips/*/*"))


def test_two_zips_of_a_team_scored_at_the_same_time_both_count(contest):
    folder, hand_in = contest
    first, second = hand_in("weak"), hand_in("weak again")
    plain = orjson.loads(second.path.read_bytes())
    second.path.write_bytes(orjson.dumps(plain | {"submission": first.submission}))  # neither saw the other
    (weak,) = [s for s in board(folder).standings if s.team == "weak"]
    assert weak.submissions == 2
    assert {weak.best.sha256, weak.last.sha256} <= {first.sha256, second.sha256}
    assert weak.best.final == max(first.final, second.final)

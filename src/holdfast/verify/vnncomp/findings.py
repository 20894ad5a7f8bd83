"""What a score says: disagreements in words, and all of it as plain values."""

from __future__ import annotations

from typing import Any

from holdfast.verify.vnncomp.score import Judged, Score


def disagreements(made: Score) -> list[tuple[Judged, str]]:
    """Each instance on which tools, counterexamples or earlier votes disagree, and what is the case."""
    told = []
    for one in made.instances:
        parts = [*_contradiction(one), *_unshown(one), *_against_votes(one)]
        if parts:
            told.append((one, "; ".join(parts)))
    return told


def _contradiction(one: Judged) -> list[str]:
    if not one.ruling.contradicted:
        return []
    who = {
        answer: ", ".join(s.tool for s in one.said.values() if s.status == answer)
        for answer in ("holds", "violated")
    }
    proven = ", ".join(s.tool for s in one.said.values() if s.status == "violated" and s.grade == "valid")
    truth = (
        f"violated is right: the counterexample of {proven} replays"
        if proven
        else f"{one.ruling.truth or 'neither'} counts: {one.ruling.reason}"
    )
    return [f"holds: {who['holds']}; violated: {who['violated']}; {truth}"]


def _unshown(one: Judged) -> list[str]:
    """Violations that cannot be shown."""
    bad = [s for s in one.said.values() if s.status == "violated" and s.grade in ("invalid", "missing")]
    return [f"{s.tool} says violated, but: {one.why.get(s.tool, s.grade)}" for s in bad]


def _against_votes(one: Judged) -> list[str]:
    majority = one.votes.majority if one.votes else None
    if one.votes is None or majority is None:
        return []
    other = "violated" if majority == "holds" else "holds"
    against = [s for s in one.said.values() if s.status == other]
    counts = f"{one.votes.holds} earlier tools say holds, {one.votes.violated} violated"
    shown = {"valid": " with a counterexample that replays"}
    return [f"{s.tool} says {other}{shown.get(s.grade, '')}, but {counts}" for s in against]


def as_json(made: Score) -> dict[str, Any]:
    """The score as plain values, for a script to read."""
    return {
        "rules": made.rules.name,
        "rule": made.rules.says,
        "tools": list(made.tools),
        "totals": dict(made.totals),
        "benchmarks": [vars(line) for line in made.lines],
        "disagreements": [
            {"category": one.category, "network": one.network, "spec": one.spec, "what": what}
            for one, what in disagreements(made)
        ],
        "instances": [_instance(one) for one in made.instances],
    }


def _instance(one: Judged) -> dict[str, Any]:
    return {
        "category": one.category,
        "network": one.network,
        "spec": one.spec,
        "truth": one.ruling.truth,
        "reason": one.ruling.reason,
        "tools": {
            name: {
                "result": said.status,
                "seconds": said.seconds,
                "witness": said.grade if said.status == "violated" else None,
                "standing": one.ruling.standing[name],
                "points": one.ruling.points[name],
            }
            for name, said in one.said.items()
        },
    }

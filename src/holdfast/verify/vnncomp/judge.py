"""Who is right about one instance, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.property import Status
from holdfast.verify.vnncomp.rules import RANDOM_TOOL, Rules, bonus

# Of a counterexample: it stands without tolerance, within the tolerance, not at all, there is none although
# it should be there, or nobody could look (another tool's table without its counterexamples).
Grade: TypeAlias = Literal["valid", "tolerated", "invalid", "missing", "unchecked"]
Standing: TypeAlias = Literal["right", "wrong", "open", "none"]
Answer: TypeAlias = Literal["holds", "violated"]


@dataclass(frozen=True)
class Said:
    """What one tool said of an instance; `seconds` are those that are scored, `grade` is of its witness."""

    tool: str
    status: Status
    seconds: float
    grade: Grade = "unchecked"


@dataclass(frozen=True)
class Votes:
    """How many tools of an earlier competition said what."""

    holds: int = 0
    violated: int = 0

    @property
    def majority(self) -> Answer | None:
        """What more of them said; None if neither."""
        return None if self.holds == self.violated else "holds" if self.holds > self.violated else "violated"


@dataclass(frozen=True)
class Ruling:
    """The truth as far as the rules know it, and each tool's standing and points."""

    truth: Answer | None
    reason: str
    standing: Mapping[str, Standing]
    points: Mapping[str, int]
    contradicted: bool


def judge(rules: Rules, said: Sequence[Said], votes: Votes | None = None) -> Ruling:
    """The ruling on what tools said of one instance; votes count where a vote decides, else nowhere."""
    votes = votes or Votes()
    truth, reason = _by_vote(said, votes) if rules.needs == "none" else _by_witness(rules, said)
    standing = {s.tool: _standing(rules, s, truth, said) for s in said}
    times = [s.seconds for s in said if standing[s.tool] == "right"]
    easy = rules.easy != rules.right and any(s.tool == RANDOM_TOOL and s.status == "violated" for s in said)
    points = {s.tool: _points(rules, standing[s.tool], s, times, easy) for s in said}
    answers = {s.status for s in said} & {"holds", "violated"}
    return Ruling(truth, reason, standing, points, len(answers) == 2)


def _points(rules: Rules, standing: Standing, said: Said, times: Sequence[float], easy: bool) -> int:
    if standing == "wrong":
        return rules.wrong
    if standing != "right":
        return 0
    return rules.easy if easy else rules.right + bonus(rules, said.seconds, times)


def _by_vote(said: Sequence[Said], votes: Votes) -> tuple[Answer | None, str]:
    if any(s.tool == RANDOM_TOOL and s.status == "violated" for s in said):
        return "violated", "random tests violate it"
    holds = votes.holds + sum(s.status == "holds" for s in said)
    violated = votes.violated + sum(s.status == "violated" for s in said)
    truth = Votes(holds, violated).majority
    return truth, f"{holds} say holds, {violated} violated"


def _by_witness(rules: Rules, said: Sequence[Said]) -> tuple[Answer | None, str]:
    violated = [s for s in said if s.status == "violated"]
    proven = [s.tool for s in violated if _proves(rules, s.grade)]
    if proven:
        return "violated", f"the counterexample of {', '.join(proven)} stands"
    if any(s.status == "holds" for s in said):
        unseen = [s.tool for s in violated if s.grade == "unchecked"]
        if unseen:
            return None, f"the counterexample of {', '.join(unseen)} is not at hand"
        near = ", ".join(s.tool for s in violated if s.grade == "tolerated")
        told = f"the counterexample of {near} stands only within the tolerance" if near else ""
        return "holds", told or ("no counterexample stands" if violated else "no tool contradicts")
    if violated:
        return "violated", "no tool contradicts"
    return None, "no tool has an answer"


def _proves(rules: Rules, grade: Grade) -> bool:
    """Whether such a counterexample proves that the property is violated: tolerance counts until 2023."""
    return grade == "valid" or (grade == "tolerated" and rules.needs in ("contradicted", "any"))


def _standing(rules: Rules, this: Said, truth: Answer | None, said: Sequence[Said]) -> Standing:
    if this.status not in ("holds", "violated"):
        return "none"
    if rules.needs == "own" and this.status == "violated" and this.grade != "unchecked":
        return "right" if this.grade in ("valid", "tolerated") else "wrong"
    if truth is None:
        return "open"
    if this.status != truth:
        return "wrong"
    if this.status == "holds" or rules.needs in ("none", "contradicted"):
        return "right"
    # The answer is the right one; from 2023 on somebody must have a counterexample to show for it.
    shown = any(_proves(rules, s.grade) or s.grade == "unchecked" for s in said if s.status == "violated")
    return "right" if shown else "wrong"

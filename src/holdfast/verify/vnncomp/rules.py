"""Scoring rules of each year, as the organisers' programs apply them, and rulings by these rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.core.property import Status

# When a violation needs a valid counterexample: never (a vote decides), if another tool reports holds,
# always (any tool's), or always (the tool's own).
Needs: TypeAlias = Literal["none", "contradicted", "any", "own"]

SAME_SECONDS = 0.2  # times that differ by less are equal
LEAST_SECONDS = 1.0  # every time below counts as this where time is scored
RANDOM_TOOL = "randgen"  # the organisers' random tests, a tool like the others in the tables of 2021
# Of a counterexample: valid without tolerance, valid within the tolerance, invalid, missing although
# required, or unchecked (another tool's table without its counterexamples).
Grade: TypeAlias = Literal["valid", "tolerated", "invalid", "missing", "unchecked"]
Standing: TypeAlias = Literal["right", "wrong", "open", "none"]
Answer: TypeAlias = Literal["holds", "violated"]


@dataclass(frozen=True)
class Rules:
    """Points for answers, and the conditions for a valid counterexample."""

    name: str
    wrong: int
    needs: Needs
    timed: bool = False  # the fastest +2, the second +1, after subtracting each tool's overhead
    right: int = 10
    easy: int = 10  # for a violation that random tests also found
    box: float = 1e-4  # absolute tolerance on the input box
    output: float = 1e-4  # and on the output rows
    declared: float | None = 1e-3  # of declared outputs against ONNX Runtime's; None ignores them
    relative: bool = True  # `declared` is relative to the largest output
    says: str = ""


_TIMED = "the fastest tool +2, the second +1 (times within 0.2 s are one, below 1 s all are), each tool's \
smallest time of a solved instance taken off as its overhead"

RULES = {
    rules.name: rules
    for rules in (
        Rules(
            "2021", -100, "none", timed=True, easy=1, output=0.0, declared=None,
            says=f"VNN-COMP 2021: right 10 (1 where random tests find the violation), wrong −100, {_TIMED}. "
            "What is right is decided by the majority of the tools; a tie counts for nobody.",
        ),
        Rules(
            "2022", -100, "contradicted", timed=True, relative=False, declared=1e-4,
            says=f"VNN-COMP 2022: right 10, wrong −100, {_TIMED}. Where tools contradict one another, a "
            "valid counterexample of any of them decides; without one, violated is wrong.",
        ),
        Rules(
            "2023", -150, "any",
            says="VNN-COMP 2023: right 10, wrong −150, no bonus for time. Violated is right if any tool has "
            "a counterexample that stands, holds if none has.",
        ),
        Rules(
            "2025", -150, "own",
            says="VNN-COMP 2025: right 10, wrong −150, no bonus for time. Violated needs the tool's own "
            "counterexample, within 1e-4 of box and rows, its outputs within 1e-3 (relative) of ONNX "
            "Runtime's; only one without any tolerance makes holds wrong.",
        ),
        Rules(
            "2026", -150, "own", output=0.0, declared=None,
            says="VNN-COMP 2026: right 10, wrong −150, no bonus for time. Violated needs the tool's own "
            "counterexample: ONNX Runtime's outputs decide, what the tool declares is ignored, the box has a "
            "tolerance of 1e-4; only one without any tolerance makes holds wrong.",
        ),
    )
}  # fmt: skip


def scored_seconds(rules: Rules, seconds: float, overhead: float) -> float:
    """The time used for scores and plots: without overhead and at least 1 s if the rules require it."""
    return max(LEAST_SECONDS, seconds - overhead) if rules.timed else seconds


def bonus(rules: Rules, seconds: float, times: Sequence[float]) -> int:
    """The points for speed among the times (scored, this one included) of all tools with the right answer.

    As in the organisers' program: a tool that ties with the fastest gets 2, and a second place exists only if
    exactly one tool was the fastest to the last digit.
    """
    if not rules.timed:
        return 0
    ordered = sorted(times)
    if seconds < ordered[0] + SAME_SECONDS:
        return 2
    return 1 if seconds < ordered[1] + SAME_SECONDS else 0


def percent(points: int, best: int) -> float:
    """A tool's points of a benchmark as percent of the best tool's; never below 0."""
    return max(0.0, 100.0 * points / best) if best > 0 else 0.0


@dataclass(frozen=True)
class ToolAnswer:
    """The answer of one tool for an instance; `seconds` are scored, `grade` is that of its counterexample."""

    tool: str
    status: Status
    seconds: float
    grade: Grade = "unchecked"
    why: str = ""  # the witness is not valid
    cpu_seconds: float | None = None


Answers: TypeAlias = Sequence[ToolAnswer]


@dataclass(frozen=True)
class Votes:
    """The number of tools of an earlier competition per verdict."""

    holds: int = 0
    violated: int = 0

    @property
    def majority(self) -> Answer | None:
        """The verdict of the majority; None in a tie."""
        return None if self.holds == self.violated else "holds" if self.holds > self.violated else "violated"


@dataclass(frozen=True)
class Ruling:
    """The truth according to the rules, if known, and each tool's standing and points."""

    truth: Answer | None
    reason: str
    standing: Mapping[str, Standing]
    points: Mapping[str, int]
    contradicted: bool


def judge(rules: Rules, answers: Answers, votes: Votes | None = None) -> Ruling:
    """The ruling on the answers of tools for one instance; votes count only where a vote decides."""
    votes = votes or Votes()
    truth, reason = _by_vote(answers, votes) if rules.needs == "none" else _by_witness(rules, answers)
    standing = {s.tool: _standing(rules, s, truth, answers) for s in answers}
    times = [s.seconds for s in answers if standing[s.tool] == "right"]
    easy = rules.easy != rules.right and _violated_at_random(answers)
    points = dict.fromkeys(standing, 0)
    for s in answers:
        if standing[s.tool] == "wrong":
            points[s.tool] = rules.wrong
        elif standing[s.tool] == "right":
            points[s.tool] = rules.easy if easy else rules.right + bonus(rules, s.seconds, times)
    contradicted = {"holds", "violated"} <= {s.status for s in answers}
    return Ruling(truth, reason, standing, points, contradicted)


def _violated_at_random(answers: Answers) -> bool:
    return any(s.tool == RANDOM_TOOL and s.status == "violated" for s in answers)


def _by_vote(answers: Answers, votes: Votes) -> tuple[Answer | None, str]:
    if _violated_at_random(answers):
        return "violated", "random tests violate it"
    holds = votes.holds + sum(s.status == "holds" for s in answers)
    violated = votes.violated + sum(s.status == "violated" for s in answers)
    truth = Votes(holds, violated).majority
    return truth, f"{holds} report holds, {violated} report violated"


def _by_witness(rules: Rules, answers: Answers) -> tuple[Answer | None, str]:
    violated = [s for s in answers if s.status == "violated"]
    proven = [s.tool for s in violated if _proves(rules, s.grade)]
    if proven:
        return "violated", f"the counterexample of {', '.join(proven)} is valid"
    if any(s.status == "holds" for s in answers):
        unchecked = [s.tool for s in violated if s.grade == "unchecked"]
        if unchecked:
            return None, f"the counterexample of {', '.join(unchecked)} is not available"
        near = ", ".join(s.tool for s in violated if s.grade == "tolerated")
        if near:
            return "holds", f"the counterexample of {near} is valid only within the tolerance"
        return "holds", "no counterexample is valid" if violated else "no tool contradicts"
    return ("violated", "no tool contradicts") if violated else (None, "no tool has an answer")


def _proves(rules: Rules, grade: Grade) -> bool:
    """Whether such a counterexample proves that the property is violated: tolerance counts until 2023."""
    return grade == "valid" or (grade == "tolerated" and rules.needs in ("contradicted", "any"))


def _standing(rules: Rules, this: ToolAnswer, truth: Answer | None, answers: Answers) -> Standing:
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
    # The answer is right; from 2023 on at least one tool must provide a counterexample.
    proven = any(_proves(rules, s.grade) or s.grade == "unchecked" for s in answers if s.status == "violated")
    return "right" if proven else "wrong"

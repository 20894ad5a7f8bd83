"""Gates: conditions under which a build fails, such as noise.map50.points_lost > 2.

A gate that is true fails. So does a gate whose number was not measured: no gate passes by absence. A gate on
too few images is not decided: it neither fails nor passes. A gate on a value with a 95% interval compares the
lower end of the interval; `.point` at the end of its name compares the value itself.
"""

import math
import operator
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.audit.result import Audit
from holdfast.audit.values import (
    ENDS,
    METRICS,
    POINT,
    RANGES,
    STILL,
    NamedValue,
    current_name,
    measured,
    required_pattern,
)
from holdfast.core.errors import InputError
from holdfast.core.limits import parse_toml
from holdfast.metrics.points import ENOUGH
from holdfast.report.tables import Table, many

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
End: TypeAlias = Literal["low", "point", "high"]
_END_NAMES: dict[End, str] = {"low": "lower end", "high": "upper end"}
FAIL_IF = "fail-if"  # the list in the table [gates] of an experiment
MIN_IMAGES = "min-images"  # the number in the same table
_GATE = re.compile(r"\s*([^\s<>=!]+)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_EXPECTED = f"NAME, one of {' '.join(OPERATORS)}, and a number, such as 'noise.map50.points_lost > 2'"


@dataclass(frozen=True)
class Gate:
    """A condition that must not be true."""

    text: str
    name: str
    op: str
    bound: float
    title: str = ""  # given by its author
    min_images: int | None = None  # minimum number to decide it; None: the argument of `judge`


@dataclass(frozen=True)
class GateVerdict:
    """The verdict on a gate: the compared number, and the reason or what the number refers to."""

    gate: Gate
    value: float | None  # as compared; None: not measured
    failed: bool
    reason: str = ""
    images: int | None = None  # n of the value; None: it is not an estimate
    decided: bool = True
    end: End = "point"  # what was compared: an end of the 95% interval, or the value itself
    point: float | None = None  # the value itself

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        return "failed" if self.failed else "passed" if self.decided else "not decided"


def gate_of(text: str, where: str = "--fail-if", title: str = "") -> Gate:
    """The gate of 'noise.map50.points_lost > 2', or InputError; `check` checks its name."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: expected {_EXPECTED}, got {text!r}")
    name, sign, number = match.groups()
    bound = math.nan
    with suppress(ValueError):
        bound = float(number)
    if not math.isfinite(bound):
        percent = " (write 2 for 2 percentage points, 0.02 for a fraction)" if number.endswith("%") else ""
        raise InputError(f"{where}: expected a number after {sign}, got {number!r} in {text!r}{percent}")
    return Gate(f"{name} {sign} {number}", name, sign, bound, title)


def gates_of(plain: object, where: str) -> tuple[Gate, ...]:
    """The gates of a table [gates]: fail-if = ["…"], a title = "…", a name = "> 2"; min-images for all."""
    if not isinstance(plain, Mapping):
        raise InputError(f'{where}: expected a table with {FAIL_IF} = ["…"], got {plain!r}')
    min_images = min_images_of(plain.get(MIN_IMAGES), f"{where}.{MIN_IMAGES}")
    gates = {key: value for key, value in plain.items() if key != MIN_IMAGES}
    return tuple(replace(gate, min_images=min_images) for gate in _entries(gates, where, ""))


def min_images_of(value: object, where: str) -> int | None:
    """The value of `min-images`, None if there is none; InputError if it is not a number of images."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{where}: expected a number of images, 1 or more, got {value!r}")
    return value


def _entries(table: Mapping[str, object], where: str, begin: str) -> Iterator[Gate]:
    for key, value in table.items():
        name = f"{begin}{key}"
        place = f"{where}.{name}"
        if isinstance(value, Mapping):  # noise.map50.points_lost without quotes is a table in a table
            yield from _entries(value, where, f"{name}.")
        elif name == FAIL_IF:
            if not isinstance(value, str | list):
                raise InputError(f"{place}: expected a list of gates: {_EXPECTED}; got {value!r}")
            for number, text in enumerate([value] if isinstance(value, str) else value):
                if not isinstance(text, str):
                    raise InputError(f"{place}[{number}]: expected a gate, got {text!r}")
                yield gate_of(text, f"{place}[{number}]")
        elif isinstance(value, str):
            bare = value.lstrip().startswith(tuple("<>=!"))
            yield gate_of(f"{name} {value}", place) if bare else gate_of(value, place, name)
        else:
            hint = f"; a list of gates is called {FAIL_IF}" if isinstance(value, list) else ""
            raise InputError(f"{place}: expected a gate: {_EXPECTED}; got {value!r}{hint}")


def read_gates(file: Path) -> tuple[Gate, ...]:
    """The gates under [gates] of a TOML file; InputError with the file if there are none."""
    try:
        document = parse_toml(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"{file}: expected a TOML file with gates, got: {problem.strerror}") from problem
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InputError(f"{file}: expected a TOML file with gates, got: {problem}") from problem
    if "gates" not in document:
        raise InputError(f'{file}: expected a table [gates] with {FAIL_IF} = ["…"], got none')
    return gates_of(document["gates"], f"{file}: gates")


def check(gates: Sequence[Gate], audit: Audit | None = None, metrics: Sequence[str] = METRICS) -> None:
    """Raise InputError if a gate has an unknown name or can never be true. Call it before a run."""
    for gate in gates:
        new = current_name(gate.name)
        if new != gate.name:  # with the gate as it is written now
            points = new.startswith("noise.")
            bound, unit_hint = (100 * gate.bound, " (in percentage points)") if points else (gate.bound, "")
            hint = f"did you mean '{new} {gate.op} {bound:g}'{unit_hint}?"
            raise InputError(f"gate {gate.text!r}: {gate.name} is a former name; {hint}")
        unit = required_pattern(gate.name, audit, metrics).unit
        low, high = RANGES[unit]
        never = (gate.op == ">" and gate.bound >= high) or (gate.op == "<" and gate.bound <= low)
        if low <= gate.bound <= high and not never:  # otherwise most often a percentage given for a fraction
            continue
        span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of {low:g} or more"
        kind = {"pixels": "a number of pixels", "points": "in percentage points"}.get(unit, f"a {unit}")
        why = "this is never true" if never else f"got {gate.bound:g}"
        share = unit in ("fraction", "difference") and 1 < abs(gate.bound) <= 100
        hint = f"; {gate.bound:g}% is {gate.bound / 100:g}" if share else ""
        raise InputError(f"gate {gate.text!r}: {gate.name} is {kind} {span}, {why}{hint}")


def judge(
    gates: Sequence[Gate], result: Audit | Mapping[str, float], min_images: int = ENOUGH
) -> tuple[GateVerdict, ...]:
    """The verdict on every gate; InputError for an unknown name.

    `result` is the audit, which gives the reasons, or only its values. A number from fewer than `min_images`
    images decides nothing; a gate's own minimum takes precedence.
    """
    audit = result if isinstance(result, Audit) else None
    check(gates, audit)
    values = measured(result) if isinstance(result, Audit) else _named(result)
    return tuple(_verdict(gate, values, audit, gate.min_images or min_images) for gate in gates)


def _named(values: Mapping[str, float]) -> dict[str, NamedValue]:
    bases = {name: name.removesuffix(".low").removesuffix(".high") for name in values}
    return {name: NamedValue(value, point=values.get(bases[name])) for name, value in values.items()}


def _verdict(
    gate: Gate, values: Mapping[str, NamedValue], audit: Audit | None, min_images: int
) -> GateVerdict:
    number, end = compared(gate.name, values)
    if number is None or math.isnan(number.value):
        return GateVerdict(gate, None, True, f"not measured{_why_missing(gate.name, audit)}")
    largest = values.get("attack.largest", NamedValue(0.0)).value
    if math.isinf(number.value) and not _reaches(gate, largest):
        why = f"no budget up to {largest:g} px breaks an image, and larger budgets were not tried"
        return GateVerdict(gate, None, True, f"not measured: {why}")
    value, images = number.value, number.images
    point = value if end == "point" else number.point
    verdict = GateVerdict(gate, value, False, number.about, images, end=end, point=point)
    if images is not None and images < min_images:
        about = f" ({number.about})" if number.about else ""
        why = f"n = {images} < {min_images} (--{MIN_IMAGES}){about}"
        return replace(verdict, reason=why, decided=False)
    return replace(verdict, failed=OPERATORS[gate.op](value, gate.bound))


def compared(name: str, values: Mapping[str, NamedValue]) -> tuple[NamedValue | None, End]:
    """The number that a gate on this name compares, and which end it is.

    By default it is the lower end of the 95% interval, and the value itself where there is no interval.
    """
    if name.endswith(".high"):
        return values.get(name), "high"
    if name.endswith(".low"):
        return values.get(name), "low"
    low = None if name.endswith(POINT) else values.get(f"{name}.low")
    if low is not None and not math.isnan(low.value):
        return low, "low"
    return values.get(name.removesuffix(POINT)), "point"


def _reaches(gate: Gate, largest: float) -> bool:
    """Whether the budgets tried reach the gate's bound: failure at 100 pixels says nothing about 1000."""
    if gate.op not in ("<", "<=", "=="):
        return True
    return largest >= (math.ceil(gate.bound) - 1 if gate.op == "<" else math.floor(gate.bound))


def _why_missing(name: str, audit: Audit | None) -> str:
    """': ' and why there is no such number; empty without an audit."""
    if audit is None:
        return ""
    pattern = required_pattern(name, audit)
    parts = [part for part in audit.parts if part.name in pattern.parts]
    words = _noise_words(name, audit)
    if name.startswith("attack.") and audit.all_attacks:
        why = f"the attack ran only with {', '.join(s.threat for s in audit.all_attacks)}"
        for s in audit.all_attacks:
            if name.startswith(f"attack.{s.threat}."):
                why = f"at {s.threat}, {s.aimed} of {s.images} images had a detected object"
        words.append(why)
    for part in parts:
        some = f"; {part.images} of {part.of} images ran" if part.images else ""
        if part.skipped:
            words.append(f"{part.name} skipped {part.skipped}{some}")
    if not words and not parts:
        needed = " or ".join(pattern.parts)
        return f": this audit did not run {needed}" if needed else ": the audit has no parts"
    return ": " + ("; ".join(words) or f"{parts[0].name} ran but gave no such number")


def _noise_words(name: str, audit: Audit) -> list[str]:
    """Why the noise options behind the name gave no number, three of them at most."""
    metric = audit.clean.metric
    reasons = []
    for noise in audit.noises:
        option = noise.label.removeprefix(f"{noise.family}=")
        begins = (f"noise.{noise.family}.{option}.{metric}.", f"noise.{noise.family}.{metric}.")
        if not name.startswith((*begins, f"noise.{metric}.points_lost")) or noise.outcome in STILL:
            continue
        if noise.points_lost is None or math.isnan(noise.points_lost):
            why = "gave no number" if noise.outcome == "measured" else f"is {noise.outcome}"
            reasons.append(f"{noise.label} {why}" + (f" ({noise.note})" if noise.note else ""))
        elif name.endswith(ENDS) and None in (noise.low, noise.high):
            reasons.append(f"{noise.label} has no interval")
    return reasons[:3]


def exit_code(judged: Sequence[GateVerdict], failures: object) -> int:
    """1 if a gate failed, 5 if one is not decided, 4 if there are `failures` of images or trials, else 0."""
    if any(verdict.failed for verdict in judged):
        return 1
    if not all(verdict.decided for verdict in judged):
        return 5
    return 4 if failures else 0


def gates_table(judged: Sequence[GateVerdict]) -> Table:
    """One row per gate: condition, measured value, n, verdict and reason."""
    columns = ("fail if", "measured", "n", "verdict", "reason")
    rows = [(gate_title(j.gate), measured_text(j), j.images, j.verdict, j.reason) for j in judged]
    return Table(columns, rows, f"{many(len(judged), 'gate')}: {count_verdicts(judged)}")


def count_verdicts(judged: Sequence[GateVerdict]) -> str:
    """The number of gates per verdict: 1 failed, 2 not decided, 3 passed."""
    number = Counter(verdict.verdict for verdict in judged)
    if len(number) == 1 and len(judged) > 1:
        return f"all {len(judged)} {judged[0].verdict}"
    return ", ".join(f"{number[word]} {word}" for word in ("failed", "not decided", "passed") if number[word])


def value_text(value: float | None) -> str:
    """The number next to its bound: integers as they are, others with six digits."""
    if value is None or math.isnan(value):
        return "not measured"
    if math.isinf(value):
        return "none"
    return str(int(value)) if value.is_integer() else f"{value:.6g}"


def measured_text(judged: GateVerdict, text: Callable[[float | None], str] = value_text) -> str:
    """The compared number, with the value itself if it is an end of an interval: lower end 0.87 of 0.91."""
    if judged.value is None or judged.end == "point" or judged.point is None:
        return text(judged.value)
    return f"{_END_NAMES[judged.end]} {text(judged.value)} of {text(judged.point)}"


def verdict_sentence(judged: GateVerdict) -> str:
    """The verdict of a gate in one sentence."""
    title, value = gate_title(judged.gate), measured_text(judged)
    if judged.value is None:
        return f"{title}: failed, {judged.reason}"
    if judged.end == "point":
        value = f"measured {value}"
    if not judged.decided:
        return f"{title}: not decided: {judged.reason}, {value}"
    images = f"n = {judged.images}" if judged.images is not None else ""
    about = "; ".join(filter(None, (images, judged.reason)))
    return f"{title}: {judged.verdict}, {value}{f' ({about})' if about else ''}"


def gate_title(gate: Gate) -> str:
    """The gate with the title its author gave it, if any."""
    return f"{gate.title}: {gate.text}" if gate.title else gate.text

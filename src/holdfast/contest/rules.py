"""The rules of a contest: everything that the contest's document leaves open, fixed in one file."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import InputError
from holdfast.core.limits import parse_toml
from holdfast.graph.card import join_problems, shortened

RULES_FILE = "rules.toml"
HEADER = """\
# The rules of this contest. Scores under different rules are not ranked together: after a change here, run
# `holdfast contest rescore`.
# For participants: the folder public/ (these rules without the hidden members of the mimic model, images.zip,
# images/, truth.json, the single model). For organisers only: everything else, above all models/ (the hidden
# members), entries/ and cache/.
"""
SECTIONS = {
    "": "",
    "single": "the attacked model of the first scenario, published to participants",
    "mimic": "the second scenario: several detectors behind one vote",
    "detection": "how models are run, and how their mean average precision (mAP) is measured",
    "distance": "the Fréchet distance between the features of the original and of the changed images",
    "effect": "S_e = 1 − mAP(changed) / mAP(original), clipped to this range",
    "stealth": "S_s = (max − distance) / (max − min), clipped to this range",
    "archive": "limits of a submitted zip",
}
AP_RULES = ("coco", "lecture", "voc", "voc2007")  # the names of holdfast.metrics.rules.RULES
MEMBERS = "members"
# Key of the section "distance" -> field of Rules.
_DISTANCE = {"features": "features", "sha256": "features_sha256", "name": "distance"}
_DISTANCE |= {"min": "distance_min", "max": "distance_max"}
_HEX = re.compile(r"[0-9a-f]{64}")


class RulesError(InputError):
    """An invalid rules file; the message names every problem."""


@dataclass(frozen=True)
class Member:
    """A model of the contest: its name, its file inside the contest's folder, and the file's hash."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Vote:
    """The vote of the mimic model: a box counts if at least `least` members have a matching one.

    Boxes match if they have the same class and an IoU of at least `iou`. Box and score are means.
    """

    members: tuple[Member, ...] = ()  # the single model is one of them
    least: int = 2
    iou: float = 0.5
    hidden: int = 0  # members that a published rules file does not name; if not 0, nothing can be scored


@dataclass(frozen=True)
class Scale:
    """A clipped range of a score; the raw value is shown next to it."""

    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Archive:
    """The limits of a submitted zip."""

    bytes: int = 1 << 30  # packed, and unpacked
    ratio: float = 200.0  # unpacked to packed, of any file
    file_bytes: int = 16 << 20  # one file, unpacked


@dataclass(frozen=True)
class Rules:
    """The rules of one contest."""

    name: str
    images: int  # numbered 1..images
    single: Member
    mimic: Vote
    features: str  # how the feature net is opened: "signs", "inception:FILE", …
    features_sha256: str
    distance: str  # name of the distance: "FID", or "FD-<net>"
    distance_max: float
    distance_min: float = 0.0
    width: int = 416
    height: int = 416
    pixels: int = 3000  # changed pixels an image: any uint8 channel differs
    ap: str = "voc"  # a name of holdfast.metrics.rules.RULES
    iou: float = 0.5
    score: float = 0.25
    nms_iou: float = 0.45
    effect: Scale = field(default_factory=Scale)  # S_e
    stealth: Scale = field(default_factory=Scale)  # S_s
    archive: Archive = field(default_factory=Archive)
    seed: int = 0


def read_rules(folder: Path) -> Rules:
    """The rules of the contest in a folder; raise RulesError with every problem. Model files are not read."""
    path = folder / RULES_FILE
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        expected = "expected the folder of a contest (`holdfast contest init DIR`)."
        if (folder / "making.json").is_file():
            expected += " It is incomplete: run `holdfast contest init` again."
        raise RulesError(f"{path}: no such file; {expected}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise RulesError(f"{path}: expected a readable TOML file, got: {problem}") from None
    except tomllib.TOMLDecodeError as problem:
        raise RulesError(f"{path}: expected TOML, got: {problem}") from None
    problems: list[str] = []
    values = read_points(document, problems)
    if not problems:
        rules = _build_rules(values)
        problems += _contradictions(rules)
    if problems:
        raise RulesError(f"{path}: {join_problems(problems)}")
    return rules


def rules_text(rules: Rules) -> str:
    """The rules as TOML: every field with a comment, one section per member."""
    lines = [HEADER]
    for section, about in SECTIONS.items():
        if section:
            lines += ["", f"[{section}]  # {about}"]
        lines += [_point_line(p, _value(rules, p)) for p in FIELDS if p.section == section]
        if section == "mimic":
            for member in rules.mimic.members:
                values = [_point_line(p, getattr(member, p.key)) for p in _MEMBER]
                lines += ["", f"[[mimic.{MEMBERS}]]", *values]
    return "\n".join(lines) + "\n"


def _value(rules: Rules, point: RuleField) -> Any:
    if point.section == "distance":
        return getattr(rules, _DISTANCE[point.key])
    return getattr(rules if point.section in ("", "detection") else getattr(rules, point.section), point.key)


def _build_rules(values: dict[str, dict[str, Any]]) -> Rules:
    members = tuple(Member(**m) for m in values["mimic"].pop(MEMBERS))
    return Rules(
        single=Member(**values["single"]),
        mimic=Vote(members, **values["mimic"]),
        effect=Scale(**values["effect"]),
        stealth=Scale(**values["stealth"]),
        archive=Archive(**values["archive"]),
        **{_DISTANCE[key]: value for key, value in values["distance"].items()},
        **values[""],
        **values["detection"],
    )


def _contradictions(rules: Rules) -> list[str]:
    problems = []
    vote, names = rules.mimic, [m.name for m in rules.mimic.members]
    area, count = rules.width * rules.height, len(names) + vote.hidden
    if rules.pixels > area:
        problems.append(f"pixels: expected at most the {area} of an image, got {rules.pixels}")
    if not vote.members:
        problems.append("mimic.members: expected at least one [[mimic.members]], got none")
    elif not 1 <= vote.least <= count:
        problems.append(f"mimic.least: expected 1 to {count}, the number of members, got {vote.least}")
    duplicates = sorted({n for n in names if names.count(n) > 1})
    problems += [f"mimic.members: {name!r} is listed {names.count(name)} times" for name in duplicates]
    if vote.members and rules.single not in vote.members:
        reason = "it has another file or hash" if rules.single.name in names else "it is missing"
        expected = f"the single model {rules.single.name!r} among them"
        problems.append(f"mimic.members: expected {expected}; {reason}")
    low, high = rules.distance_min, rules.distance_max
    if high <= low:
        problems.append(f"distance.max: expected more than distance.min ({low}), got {high}")
    for name, scale in (("effect", rules.effect), ("stealth", rules.stealth)):
        if scale.low > scale.high:
            problems.append(f"{name}.low: expected at most {name}.high ({scale.high}), got {scale.low}")
    return problems


@dataclass(frozen=True)
class RuleField:
    """One line of the file: its type, range and description."""

    section: str
    key: str
    kind: type
    about: str
    least: float = -math.inf
    most: float = math.inf
    form: str = ""  # of a text: "name", "path", "sha256" or "ap"


FIELDS = (
    RuleField("", "name", str, "name of the contest", form="name"),
    RuleField(
        "", "images", int, "number of images, numbered from 1: images/1.png …", least=1, most=1_000_000
    ),
    RuleField("", "width", int, "width of every image in pixels", least=1, most=16_384),
    RuleField("", "height", int, "height of every image in pixels", least=1, most=16_384),
    RuleField(
        "", "pixels", int, "maximum changed pixels per image; a pixel counts if any channel differs", 0
    ),
    RuleField("", "seed", int, "random seed of the image order and of the noise behind distance.max", 0),
    RuleField("single", "name", str, "its name", form="name"),
    RuleField("single", "file", str, "its ONNX file in this folder; the card is next to it", form="path"),
    RuleField("single", "sha256", str, "the hash of that file", form="sha256"),
    RuleField("mimic", "least", int, "a box counts if at least this many members have one of its class", 1),
    RuleField("mimic", "iou", float, "… that overlaps it by at least this IoU", least=0, most=1),
    RuleField(
        "mimic", "hidden", int, "number of further members that are not named here", least=0, most=1000
    ),
    RuleField("detection", "ap", str, "how AP is computed: voc, voc2007, coco or lecture", form="ap"),
    RuleField("detection", "iou", float, "IoU threshold with a true box of its class", least=0, most=1),
    RuleField("detection", "score", float, "score threshold of every model", least=0, most=1),
    RuleField("detection", "nms_iou", float, "IoU threshold of NMS", least=0, most=1),
    RuleField("distance", "features", str, 'the feature network: "signs", or "inception:FILE"', form="name"),
    RuleField("distance", "sha256", str, "the hash of that network", form="sha256"),
    RuleField("distance", "name", str, "name; FID only with the original Inception weights", form="name"),
    RuleField("distance", "min", float, "the distance at which S_s is 1", least=0, most=1e300),
    RuleField("distance", "max", float, "the distance at which S_s is 0", least=0, most=1e300),
    RuleField("effect", "low", float, "lower bound of S_e; -inf: not clipped"),
    RuleField("effect", "high", float, "upper bound of S_e"),
    RuleField("stealth", "low", float, "lower bound of S_s; -inf: not clipped"),
    RuleField("stealth", "high", float, "upper bound of S_s"),
    RuleField("archive", "bytes", int, "maximum bytes of the zip, packed and unpacked", 1),
    RuleField("archive", "ratio", float, "maximum compression ratio of a file", 1),
    RuleField("archive", "file_bytes", int, "maximum bytes of a single unpacked file", 1),
)
_MEMBER = tuple(p for p in FIELDS if p.section == "single")


def read_points(document: Mapping[str, Any], problems: list[str]) -> dict[str, dict[str, Any]]:
    """The values by section and key; missing, unknown and invalid ones are added to `problems`."""
    top = {k: v for k, v in document.items() if k not in SECTIONS}
    values = {}
    for section in SECTIONS:
        table = document.get(section, {}) if section else top
        if not isinstance(table, dict):
            problems.append(f"{section}: expected a section [{section}], got {shortened(table)}")
            continue
        fields = [p for p in FIELDS if p.section == section]
        extra = (MEMBERS,) if section == "mimic" else tuple(s for s in SECTIONS if s) if not section else ()
        values[section] = _read_table(table, fields, f"{section}." if section else "", problems, extra)
    rows = document.get("mimic", {}).get(MEMBERS, []) if isinstance(document.get("mimic"), dict) else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        problems.append(f"mimic.{MEMBERS}: expected sections [[mimic.{MEMBERS}]], got {shortened(rows)}")
        rows = []
    members = [_read_table(row, _MEMBER, f"mimic.{MEMBERS}[{n}].", problems) for n, row in enumerate(rows, 1)]
    values.setdefault("mimic", {})[MEMBERS] = members
    return values


def _read_table(
    table: Mapping[str, Any],
    points: Sequence[RuleField],
    where: str,
    problems: list[str],
    extra: Sequence[str] = (),
) -> dict[str, Any]:
    fields, values = {p.key: p for p in points}, {}
    for key, value in table.items():
        if key in extra:
            continue
        if key not in fields:
            similar = difflib.get_close_matches(key, [*fields, *extra], n=1, cutoff=0.5)
            hint = f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join([*fields, *extra])}"
            problems.append(f"{where}{key}: unknown; {hint}")
            continue
        expected = _expected(fields[key], value)
        if expected:
            problems.append(f"{where}{key}: expected {expected}, got {shortened(value)}")
        else:
            values[key] = fields[key].kind(value)
    problems += [f"{where}{p.key}: missing; {p.about}" for p in points if p.key not in table]
    return values


def _expected(point: RuleField, value: Any) -> str:
    """The expected value in words; empty if the value is valid."""
    if point.form == "ap":
        return "" if value in AP_RULES else f"one of {', '.join(AP_RULES)}"
    if point.kind is str:
        if not isinstance(value, str) or not value or not value.isprintable():
            return "a text"
        if point.form == "sha256" and not _HEX.fullmatch(value):
            return "a sha256 of 64 hex digits"
        outside = value.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", value) or ":" in value
        return "a path inside the contest's folder" if point.form == "path" and outside else ""
    kinds = (int,) if point.kind is int else (int, float)
    if type(value) in kinds and point.least <= value <= point.most:
        return ""
    whole = "a whole number" if point.kind is int else "a number"
    if point.least == -math.inf:
        return whole
    return f"{whole} from {point.least:g}" + (f" to {point.most:g}" if point.most < math.inf else "")


def _point_line(point: RuleField, value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False) if point.kind is str else repr(point.kind(value))
    return f"{f'{point.key} = {shown}':<28}  # {point.about}"

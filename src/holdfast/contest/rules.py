"""The rules of a contest: every point the contest's document leaves open, fixed in one file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contest.points import read_points, text_of
from holdfast.core.errors import InputError
from holdfast.graph.card import join_problems

RULES_FILE = "rules.toml"


class RulesError(InputError):
    """A rules file with something wrong in it; the message names every problem."""


@dataclass(frozen=True)
class Member:
    """A model of the contest: its name, its file inside the contest's folder, and the file's hash."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Vote:
    """How the mimic model votes: a box stands when at least `least` members have one like it.

    Like it means: of the same class, with an IoU of at least `iou`. Box and score come from those that agree.
    """

    members: tuple[Member, ...] = ()  # the single model is one of them
    least: int = 2
    iou: float = 0.5
    hidden: int = 0  # members that a published rules file does not name; with any, nothing can be scored


@dataclass(frozen=True)
class Scale:
    """A clipped range of a score; the raw value is shown beside it."""

    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class Archive:
    """What a submitted zip may be at most."""

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
    distance: str  # what the number is called: "FID", or "FD-<net>"
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
    """The rules of the contest in a folder; RulesError names every problem. No model file is looked at."""
    path = folder / RULES_FILE
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        half = ""
        if (folder / "making.json").is_file():
            half = " It was not finished: run `holdfast contest init` again."
        raise RulesError(
            f"{path}: no such file; expected the folder of a contest (`holdfast contest init DIR`).{half}"
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise RulesError(f"{path}: expected a readable TOML file, got: {problem}") from None
    except tomllib.TOMLDecodeError as problem:
        raise RulesError(f"{path}: expected TOML, got: {problem}") from None
    problems: list[str] = []
    values = read_points(document, problems)
    rules = None if problems else _built(values)
    problems += _contradictions(rules) if rules else []
    if problems or rules is None:
        raise RulesError(f"{path}: {join_problems(problems)}")
    return rules


def rules_text(rules: Rules) -> str:
    """The rules as TOML, every point with a comment on what it means."""
    members = [_member(m) for m in rules.mimic.members]
    values = {
        "": {k: getattr(rules, k) for k in ("name", "images", "width", "height", "pixels", "seed")},
        "single": _member(rules.single),
        "detection": {k: getattr(rules, k) for k in ("ap", "iou", "score", "nms_iou")},
        "distance": {
            "features": rules.features,
            "sha256": rules.features_sha256,
            "name": rules.distance,
            "min": rules.distance_min,
            "max": rules.distance_max,
        },
        "effect": {"low": rules.effect.low, "high": rules.effect.high},
        "stealth": {"low": rules.stealth.low, "high": rules.stealth.high},
        "archive": {k: getattr(rules.archive, k) for k in ("bytes", "ratio", "file_bytes")},
        "mimic": {k: getattr(rules.mimic, k) for k in ("least", "iou", "hidden")},
    }
    return text_of(values, members)


def _member(member: Member) -> dict[str, str]:
    return {"name": member.name, "file": member.file, "sha256": member.sha256}


def _built(values: dict[str, dict[str, object]]) -> Rules:
    """The rules from values that are all there and of the right kind."""
    top, found, distance = values[""], values["detection"], values["distance"]
    members = tuple(Member(**m) for m in values["mimic"].pop("members"))  # type: ignore[attr-defined]
    return Rules(
        single=Member(**values["single"]),  # type: ignore[arg-type]
        mimic=Vote(members, **values["mimic"]),  # type: ignore[arg-type]
        features=str(distance["features"]),
        features_sha256=str(distance["sha256"]),
        distance=str(distance["name"]),
        distance_max=distance["max"],  # type: ignore[arg-type]
        distance_min=distance["min"],  # type: ignore[arg-type]
        effect=Scale(**values["effect"]),  # type: ignore[arg-type]
        stealth=Scale(**values["stealth"]),  # type: ignore[arg-type]
        archive=Archive(**values["archive"]),  # type: ignore[arg-type]
        **top,  # type: ignore[arg-type]
        **found,  # type: ignore[arg-type]
    )


def _contradictions(rules: Rules) -> list[str]:
    """What is wrong with rules whose points are each right by themselves."""
    problems = []
    vote, names = rules.mimic, [m.name for m in rules.mimic.members]
    if rules.pixels > rules.width * rules.height:
        whole = rules.width * rules.height
        problems.append(f"pixels: expected at most the {whole} of an image, got {rules.pixels}")
    if not vote.members:
        problems.append("mimic.members: expected at least one [[mimic.members]], got none")
    elif not 1 <= vote.least <= len(names) + vote.hidden:
        count = len(names) + vote.hidden
        problems.append(f"mimic.least: expected 1 to {count}, the number of members, got {vote.least}")
    twice = sorted({n for n in names if names.count(n) > 1})
    problems += [f"mimic.members: {name!r} is listed {names.count(name)} times" for name in twice]
    if vote.members and rules.single not in vote.members:
        said = "got it with another file or hash" if rules.single.name in names else "it is not there"
        problems.append(f"mimic.members: expected the single model {rules.single.name!r} among them; {said}")
    if rules.distance_max <= rules.distance_min:
        low = rules.distance_min
        problems.append(f"distance.max: expected more than distance.min ({low}), got {rules.distance_max}")
    for name in ("effect", "stealth"):
        scale: Scale = getattr(rules, name)
        if scale.low > scale.high:
            problems.append(f"{name}.low: expected at most {name}.high ({scale.high}), got {scale.low}")
    return problems

"""An audit for CI systems: JUnit XML, one test case per gate, and SARIF 2.1.0, failed gates and findings.

Without gates nothing is judged, so nothing passes or fails: then JUnit lists the parts of the audit, those
skipped with their reason. In SARIF failed gates are errors, undecided gates are notes, findings are warnings
or notes; gates that passed are not listed. The location of each result is the model's file.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree as ET

from holdfast.audit.gates import GateVerdict, gate_title, verdict_sentence
from holdfast.audit.options import ENOUGH
from holdfast.audit.result import Audit, Part, Recheck
from holdfast.audit.values import SQUARE, measured, required_pattern, some
from holdfast.engine.store import to_json

MOST = 10  # images named in one finding
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
Level: TypeAlias = Literal["warning", "note"]
# XML 1.0 does not allow these, escaped or not; most parsers reject the whole file for one of them.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Finding:
    """A finding: its kind, a stable key, its text, the command that reproduces it, and its numbers."""

    kind: Literal["noise", "attack", "square", "spec", "recheck", "matrix"]
    key: str  # the same in every run
    text: str
    command: str
    numbers: dict[str, Any] = field(default_factory=dict)
    images: int | None = None  # n of an estimate
    level: Level = "warning"


KINDS: dict[str, str] = {
    "noise": "A noise option that lowers the metric significantly: the 95% interval is above 0.",
    "attack": "Changed pixels within the pixel budget that hide every detected object.",
    "square": "A black square that hides a detected object.",
    "spec": "A violated specification; its counterexample was replayed on the original model file.",
    "recheck": "A property that holds for the training pipeline but not under a deployment, or the reverse.",
    "matrix": "A threat and a deployment that together lose significantly more points than both alone.",
}


def findings(audit: Audit) -> tuple[Finding, ...]:
    """All findings of the audit, in the order of its engines."""
    found = []
    for of in (_noise, _attack, _squares, _specs, _rechecks, _matrix):
        for one in of(audit):
            if one.images is not None and one.images < ENOUGH:  # a note instead of a warning
                one = replace(one, level="note", text=f"{one.text} Indication only (n = {one.images}).")
            found.append(one)
    return tuple(found)


def _noise(audit: Audit) -> Iterator[Finding]:
    title = audit.clean.title
    noises = [*audit.noises, *([audit.combined] if audit.combined else [])]
    for one in noises:
        if one.outcome == "measured" and one.points_lost is not None and one.low is not None and one.low > 0:
            low = _points(one.low)
            ends = f"{low} to {_points(one.high)}" if one.high is not None else f"{low} or more"
            lost = f"{_points(one.points_lost)} points lost (95% interval {ends}, n = {one.images})"
            name = f"{one.label} (hypothetical)" if one.hypothetical else one.label
            text = f"{name}: {title}, {lost}."
            numbers = _fields(one, "points_lost", "low", "high", "images")
            key = one.family if one.family == "combined" else one.label
            yield Finding("noise", key, text, one.command, numbers=numbers, images=one.images)


def _fields(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def _points(value: float) -> str:
    """Points with two digits, fewer than 0.01 with four: a loss is not shown as 0.00."""
    return f"{value:z.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.4f}"


def _attack(audit: Audit) -> Iterator[Finding]:
    for one in audit.attacks:
        if one.broken:
            fall = f"{audit.clean.title} falls from {one.before:.3f} to {one.after:.3f}"
            pixels = f"At most {one.pixels} scattered pixels"
            text = f"{pixels} hide every detected object in {one.broken} of {one.aimed} images; {fall}."
            numbers = {**_fields(one, "pixels", "broken", "aimed"), "Se": one.effect}
            numbers |= _fields(one, "before", "after", "engine")
            yield Finding("attack", one.threat, text, one.command, numbers=numbers, images=one.aimed)


def _squares(audit: Audit) -> Iterator[Finding]:
    proofs = [p for p in audit.proofs if p.threat == SQUARE]
    broken = [p for p in proofs if p.answer == "violated"]
    if broken:
        images = some((p.image for p in broken), MOST)
        text = f"A black square hides an object in {len(broken)} of {len(proofs)} images: {images}."
        worst = min(broken, key=lambda p: 0.0 if p.margin is None else p.margin)
        if worst.where is not None:
            text += f" Worst: {worst.image} at column {worst.where[0]}, row {worst.where[1]}."
        numbers = {"broken": len(broken), "images": len(proofs), "engine": worst.engine}
        yield Finding("square", SQUARE, text, worst.command, numbers=numbers, images=len(proofs))


def _specs(audit: Audit) -> Iterator[Finding]:
    for one in audit.proofs:
        if one.threat != SQUARE and one.answer == "violated":
            of = f" of {one.image}" if one.image and one.image != one.threat else ""
            note = f" ({one.note})" if one.note else ""
            text = f"Specification {one.threat}{of} is violated (engine {one.engine}){note}."
            yield Finding("spec", f"{one.threat} {one.image}", text, one.command)


def _rechecks(audit: Audit) -> Iterator[Finding]:
    """One finding per threat, deployment and change, because there may be hundreds of images."""
    groups: dict[tuple[str, str, str], list[Recheck]] = {}
    for one in audit.findings:
        groups.setdefault((one.threat, one.deployment, one.was), []).append(one)
    for (threat, deployment, was), rows in groups.items():
        words = "holds for the training pipeline, violated" if was == "holds" else "violated, but holds"
        images = [r.image or r.threat for r in rows]
        text = f"{threat}: {words} under {deployment} ({len(rows)}×): {some(images, MOST)}."
        numbers = {"count": len(rows), "deployment": deployment, "threat": threat, "images": images[:MOST]}
        level: Level = "warning" if was == "holds" else "note"
        yield Finding(
            "recheck", f"{threat} {deployment} {was}", text, audit.command, numbers=numbers, level=level
        )


def _matrix(audit: Audit) -> Iterator[Finding]:
    for one in audit.matrix.cells:
        if one.effect == "magnified" and one.extra_points_lost is not None:
            ends = f"{_points(one.low or 0.0)} to {_points(one.high or 0.0)}"
            lost = f"{_points(one.extra_points_lost)} more points lost (95% interval {ends})"
            text = f"{one.threat} with {one.deployment}: {lost} than the sum of both alone."
            numbers = _fields(one, "extra_points_lost", "low", "high", "value")
            key = f"{one.threat} {one.deployment}"
            yield Finding("matrix", key, text, one.command, numbers=numbers, images=one.images)


def junit(audit: Audit, judged: Sequence[GateVerdict]) -> str:
    """The JUnit XML of an audit and its gates."""
    cases = _cases(audit, judged) if judged else [_part(part) for part in audit.parts]
    count = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{audit.seconds:.3f}",
    }
    name = f"holdfast audit {audit.model.get('name', '')} on {audit.data.get('name', '')}"
    suite = _element("testsuite", {"name": name, **count, **_timestamp(audit.created)})
    values = {
        "model": audit.model.get("path", ""),
        "model.sha256": audit.model.get("sha256", ""),
        "data": audit.data.get("name", ""),
        "command": audit.command,
        **{f"version.{name}": version for name, version in audit.versions.items()},
    }
    properties = _element("properties")
    properties.extend(_element("property", {"name": n, "value": str(v)}) for n, v in values.items())
    suite.extend([properties, *cases])
    if audit.notes:
        suite.append(_element("system-out", text="\n".join(audit.notes)))
    if audit.failed:
        suite.append(_element("system-err", text="\n".join(f"failed image: {name}" for name in audit.failed)))
    whole = _element("testsuites", {"name": "holdfast", **count})
    whole.append(suite)
    ET.indent(whole)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(whole, encoding="unicode")}\n'


def _cases(audit: Audit, judged: Sequence[GateVerdict]) -> list[ET.Element]:
    commands = _commands(audit)
    cases = []
    for one in judged:
        about = {"name": gate_title(one.gate), "classname": f"holdfast.{one.gate.name.partition('.')[0]}"}
        case = _element("testcase", {**about, "time": "0.000"})
        command, sentence = commands.get(one.gate.name, audit.command), verdict_sentence(one)
        if one.failed:
            again = f"\nreproduce: {command}" if command else ""
            kind = {"message": sentence, "type": "not measured" if one.value is None else "gate"}
            case.append(_element("failure", kind, f"fail if {one.gate.text}\n{sentence}{again}"))
        elif not one.decided:
            case.append(_element("skipped", {"message": sentence}))
        else:
            case.append(_element("system-out", text=sentence))
        cases.append(case)
    return cases


def _commands(audit: Audit) -> dict[str, str]:
    """The command behind each number that a gate can name."""
    return {name: one.command for name, one in measured(audit).items()}


def _part(part: Part) -> ET.Element:
    about = {"name": part.name, "classname": "holdfast.audit", "time": f"{part.seconds:.3f}"}
    case = _element("testcase", about)
    if part.skipped and not part.images:
        case.append(_element("skipped", {"message": part.skipped}))
    else:
        ran = f"ran on {part.images} of {part.of} images" if part.images else "ran"
        left = f"; skipped: {part.skipped}" if part.skipped else ""
        again = f"\nreproduce: {part.command}" if part.command else ""
        case.append(_element("system-out", text=f"{ran}{left}{again}"))
    return case


def _timestamp(created: str) -> dict[str, str]:
    """The timestamp in the form of the schema: UTC, without an offset; empty if the audit has none."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return {}
    utc = moment.astimezone(UTC) if moment.tzinfo else moment
    return {"timestamp": utc.replace(tzinfo=None).isoformat(timespec="seconds")}


def _element(tag: str, attributes: dict[str, str] | None = None, text: str = "") -> ET.Element:
    legal = partial(_ILLEGAL.sub, "\ufffd")
    element = ET.Element(tag, {key: legal(value) for key, value in (attributes or {}).items()})
    element.text = legal(text) or None
    return element


def sarif(audit: Audit, judged: Sequence[GateVerdict], root: Path | None = None) -> str:
    """The SARIF log of an audit and its gates; `root` is the repository's folder, by default the current."""
    path = str(audit.model.get("path") or audit.model.get("name", ""))
    # An ONNX file has no lines, but code scanning shows only results with a line.
    region = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
    location = {"artifactLocation": {"uri": model_uri(path, root or Path.cwd())}, "region": region}
    rules = _rules(audit, judged)
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    rows = _gate_results(audit, judged)
    rows += [_result(f.kind, f.level, f.text, f.key, f.numbers, f.command) for f in findings(audit)]
    locations = [{"physicalLocation": location}]
    results = [{**row, "ruleIndex": places[row["ruleId"]], "locations": locations} for row in rows]
    version = {"version": audit.versions["holdfast"]} if audit.versions.get("holdfast") else {}
    line = {"commandLine": audit.command} if audit.command else {}
    left = [("note", f"{p.name}: skipped: {p.skipped}") for p in audit.parts if p.skipped]
    failed = [("warning", f"failed image: {name}") for name in audit.failed]
    notes = [{"level": level, "message": {"text": text}} for level, text in (*left, *failed)]
    run = {
        "tool": {"driver": {"name": "holdfast", **version, "rules": rules}},
        "invocations": [{"executionSuccessful": True, **line, "toolExecutionNotifications": notes}],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"model": audit.model, "data": audit.data, "versions": audit.versions},
    }
    return to_json({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=True).decode()


def model_uri(path: str, root: Path) -> str:
    """The path as a URI reference: relative and percent-encoded below `root`, else a file URI."""
    file, start = Path(path), ""
    if file.is_absolute() and file.is_relative_to(root):
        file = file.relative_to(root)
    elif file.is_absolute():
        file, start = Path("/" + file.as_posix().lstrip("/")), "file://"
    return start + quote(file.as_posix(), errors="surrogateescape")  # a name that is no UTF-8 by its bytes


def _rules(audit: Audit, judged: Sequence[GateVerdict]) -> list[dict[str, Any]]:
    """One rule per pattern of the names in the gates, then one per kind of finding."""
    patterns = dict.fromkeys(required_pattern(one.gate.name, audit) for one in judged)
    gates = [
        _rule(f"gate/{p.text}", f"Gate on {p.text}: {p.meaning}.", f"Unit: {p.unit}.", "error")
        for p in patterns
    ]
    own = [
        _rule(kind, text, "A finding of the audit, not a gate.", "warning") for kind, text in KINDS.items()
    ]
    return [*gates, *own]


def _rule(name: str, short: str, more: str, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": f"{short} {more}"},
        "help": {"text": f"{short} {more} The result has the command that reproduces the number."},
        "defaultConfiguration": {"level": level},
    }


def _gate_results(audit: Audit, judged: Sequence[GateVerdict]) -> list[dict[str, Any]]:
    commands, rows = _commands(audit), []
    for one in (one for one in judged if one.failed or not one.decided):
        gate, level = one.gate, "error" if one.failed else "note"
        numbers = {"gate": gate.text, "value": one.value, "bound": gate.bound}
        numbers |= _fields(one, "reason", "images")
        rule, command = required_pattern(gate.name, audit).text, commands.get(gate.name, audit.command)
        text = f"Gate {verdict_sentence(one)}."
        rows.append(_result(f"gate/{rule}", level, text, gate.text, numbers, command))
    return rows


def _result(
    rule: str, level: str, text: str, key: str, numbers: dict[str, Any], command: str
) -> dict[str, Any]:
    again = f" Reproduce: {command}" if command else ""
    hashed = hashlib.sha256(f"{rule}\n{key}".encode("utf-8", "replace")).hexdigest()[:16]
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text + again},
        "partialFingerprints": {"primaryLocationLineHash": f"{hashed}:1"},
        "properties": {**numbers, "command": command},
    }

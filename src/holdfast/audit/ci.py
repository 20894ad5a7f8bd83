"""An audit for CI systems: JUnit XML, one test case per gate, and SARIF 2.1.0, failed gates and findings.

Without gates nothing is judged, so nothing passes or fails: then JUnit lists the parts of the audit, those
skipped with their reason. In SARIF failed gates are errors, undecided gates are notes, findings are warnings
or notes; gates that passed are not listed. The location of each result is the model's file.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote
from xml.etree import ElementTree as ET

from holdfast.audit.gates import GateVerdict, compared, gate_title, verdict_sentence
from holdfast.audit.result import Audit, Part, Recheck
from holdfast.audit.values import SQUARE, NamedValue, measured, required_pattern, some
from holdfast.engine.store import to_json
from holdfast.metrics.points import ENOUGH

MOST = 10  # images named in one finding
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
Level: TypeAlias = Literal["error", "warning", "note"]
# XML 1.0 does not allow these, escaped or not; most parsers reject the whole file for one of them.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Finding:
    """A finding: its kind, a stable key, its text, the command that reproduces it, and its numbers."""

    kind: str  # of KINDS, or gate/PATTERN
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
    results = []
    for of in (_noise, _attack, _squares, _specs, _rechecks, _matrix):
        for finding in of(audit):
            if finding.images is not None and finding.images < ENOUGH:  # a note instead of a warning
                text = f"{finding.text} Indication only (n = {finding.images})."
                finding = replace(finding, level="note", text=text)
            results.append(finding)
    return tuple(results)


def _noise(audit: Audit) -> Iterator[Finding]:
    for noise in audit.all_noises:
        if noise.outcome == "measured" and noise.points_lost is not None and (noise.low or 0) > 0:
            low = _points(noise.low or 0)
            ends = f"{low} to {_points(noise.high)}" if noise.high is not None else f"{low} or more"
            lost = f"{_points(noise.points_lost)} points lost (95% interval {ends}, n = {noise.images})"
            name = f"{noise.label} (hypothetical)" if noise.hypothetical else noise.label
            text = f"{name}: {audit.clean.title}, {lost}."
            numbers = _fields(noise, "points_lost", "low", "high", "images")
            key = noise.family if noise.family == "combined" else noise.label
            yield Finding("noise", key, text, noise.command, numbers, images=noise.images)


def _fields(result: object, *names: str) -> dict[str, Any]:
    return {name: getattr(result, name) for name in names}


def _points(value: float) -> str:
    """Points with two digits, fewer than 0.01 with four: a loss is not shown as 0.00."""
    return f"{value:z.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:z.4f}"


def _attack(audit: Audit) -> Iterator[Finding]:
    for level in audit.all_attacks:
        if level.broken:
            fall = f"{audit.clean.title} falls from {level.before:.3f} to {level.after:.3f}"
            of = f"{level.broken} of {level.aimed} images"
            text = f"At most {level.pixels} scattered pixels hide every detected object in {of}; {fall}."
            if level is audit.patch:
                words = level.words[:1].upper() + level.words[1:]
                text = f"{words} hides every detected object in {of}; {fall}."
            numbers = {**_fields(level, "pixels", "broken", "aimed"), "Se": level.effect}
            numbers |= _fields(level, "before", "after", "engine")
            yield Finding("attack", level.threat, text, level.command, numbers, images=level.aimed)


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
        yield Finding("square", SQUARE, text, worst.command, numbers, images=len(proofs))


def _specs(audit: Audit) -> Iterator[Finding]:
    for proof in audit.proofs:
        if proof.threat != SQUARE and proof.answer == "violated":
            of = f" of {proof.image}" if proof.image and proof.image != proof.threat else ""
            note = f" ({proof.note})" if proof.note else ""
            text = f"Specification {proof.threat}{of} is violated (engine {proof.engine}){note}."
            yield Finding("spec", f"{proof.threat} {proof.image}", text, proof.command)


def _rechecks(audit: Audit) -> Iterator[Finding]:
    """One finding per threat, deployment and change, because there may be hundreds of images."""
    groups: dict[tuple[str, str, str], list[Recheck]] = {}
    for recheck in audit.findings:
        groups.setdefault((recheck.threat, recheck.deployment, recheck.was), []).append(recheck)
    for (threat, deployment, was), rows in groups.items():
        words = "holds for the training pipeline, violated" if was == "holds" else "violated, but holds"
        images = [r.image or r.threat for r in rows]
        text = f"{threat}: {words} under {deployment} ({len(rows)}×): {some(images, MOST)}."
        numbers = {"count": len(rows), "deployment": deployment, "threat": threat, "images": images[:MOST]}
        level: Level = "warning" if was == "holds" else "note"
        key = f"{threat} {deployment} {was}"
        yield Finding("recheck", key, text, audit.command, numbers, level=level)


def _matrix(audit: Audit) -> Iterator[Finding]:
    for cell in audit.matrix.cells:
        if cell.effect == "magnified" and cell.extra_points_lost is not None:
            ends = f"{_points(cell.low or 0.0)} to {_points(cell.high or 0.0)}"
            lost = f"{_points(cell.extra_points_lost)} more points lost (95% interval {ends})"
            text = f"{cell.threat} with {cell.deployment}: {lost} than the sum of both alone."
            numbers = _fields(cell, "extra_points_lost", "low", "high", "value")
            key = f"{cell.threat} {cell.deployment}"
            yield Finding("matrix", key, text, cell.command, numbers, images=cell.images)


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
    values, cases = measured(audit), []
    for verdict in judged:
        gate, sentence = verdict.gate, verdict_sentence(verdict)
        about = {"name": gate_title(gate), "classname": f"holdfast.{gate.name.partition('.')[0]}"}
        case = _element("testcase", {**about, "time": "0.000"})
        command = _command(gate.name, values, audit)
        if verdict.failed:
            again = f"\nreproduce: {command}" if command else ""
            kind = {"message": sentence, "type": "not measured" if verdict.value is None else "gate"}
            case.append(_element("failure", kind, f"fail if {gate.text}\n{sentence}{again}"))
        elif not verdict.decided:
            case.append(_element("skipped", {"message": sentence}))
        else:
            case.append(_element("system-out", text=sentence))
        cases.append(case)
    return cases


def _command(name: str, values: Mapping[str, NamedValue], audit: Audit) -> str:
    """The command that reproduces the number that a gate on this name compares."""
    number, _ = compared(name, values)
    return audit.command if number is None else number.command


def _part(part: Part) -> ET.Element:
    about = {"name": part.name, "classname": "holdfast.audit", "time": f"{part.seconds:.3f}"}
    case = _element("testcase", about)
    if part.skipped and not part.images:
        case.append(_element("skipped", {"message": part.skipped}))
    else:
        ran = f"ran on {part.images} of {part.of} images" if part.images else "ran"
        skipped = f"; skipped: {part.skipped}" if part.skipped else ""
        again = f"\nreproduce: {part.command}" if part.command else ""
        case.append(_element("system-out", text=f"{ran}{skipped}{again}"))
    return case


def _timestamp(created: str) -> dict[str, str]:
    """The timestamp in the form of the schema: UTC, without an offset; empty if the audit has none."""
    try:
        time = datetime.fromisoformat(created)
    except ValueError:
        return {}
    utc = time.astimezone(UTC) if time.tzinfo else time
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
    index = {rule["id"]: number for number, rule in enumerate(rules)}
    places = [{"physicalLocation": location}]
    results = [
        {**_result(finding), "ruleIndex": index[finding.kind], "locations": places}
        for finding in (*_gate_findings(audit, judged), *findings(audit))
    ]
    version = {"version": audit.versions["holdfast"]} if audit.versions.get("holdfast") else {}
    line = {"commandLine": audit.command} if audit.command else {}
    skipped = [("note", f"{p.name}: skipped: {p.skipped}") for p in audit.parts if p.skipped]
    failed = [("warning", f"failed image: {name}") for name in audit.failed]
    notes = [{"level": level, "message": {"text": text}} for level, text in (*skipped, *failed)]
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
    rules = []
    for p in dict.fromkeys(required_pattern(verdict.gate.name, audit) for verdict in judged):
        short = f"Gate on {p.text}: {p.meaning}."
        rules.append(_rule(f"gate/{p.text}", short, f"Unit: {p.unit}.", "error"))
    more = "A finding of the audit, not a gate."
    return rules + [_rule(kind, text, more, "warning") for kind, text in KINDS.items()]


def _rule(name: str, short: str, more: str, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": f"{short} {more}"},
        "help": {"text": f"{short} {more} The result has the command that reproduces the number."},
        "defaultConfiguration": {"level": level},
    }


def _gate_findings(audit: Audit, judged: Sequence[GateVerdict]) -> Iterator[Finding]:
    """The gates that failed, as errors, and those that are not decided, as notes."""
    values = measured(audit)
    for verdict in (verdict for verdict in judged if verdict.failed or not verdict.decided):
        gate = verdict.gate
        numbers = {"gate": gate.text, "value": verdict.value, "bound": gate.bound}
        numbers |= _fields(verdict, "end", "point", "reason", "images")
        rule, command = required_pattern(gate.name, audit).text, _command(gate.name, values, audit)
        text = f"Gate {verdict_sentence(verdict)}."
        level: Level = "error" if verdict.failed else "note"
        yield Finding(f"gate/{rule}", gate.text, text, command, numbers, level=level)


def _result(finding: Finding) -> dict[str, Any]:
    again = f" Reproduce: {finding.command}" if finding.command else ""
    key = f"{finding.kind}\n{finding.key}".encode("utf-8", "replace")
    return {
        "ruleId": finding.kind,
        "level": finding.level,
        "message": {"text": finding.text + again},
        "partialFingerprints": {"primaryLocationLineHash": f"{hashlib.sha256(key).hexdigest()[:16]}:1"},
        "properties": {**finding.numbers, "command": finding.command},
    }

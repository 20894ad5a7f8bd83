"""An audit as SARIF 2.1.0, which code scanning shows beside the model: failed gates and findings.

Failed gates are errors, gates that are not decided are notes, findings are warnings or notes; gates that
passed are not listed. The place of each
result is the model's file, relative to `root` where it lies below it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.audit.gates import Judged
from holdfast.audit.names import required_pattern
from holdfast.audit.pages.findings import KINDS, Finding, findings
from holdfast.audit.pages.gates import sentence
from holdfast.audit.result import Audit
from holdfast.audit.values import measured
from holdfast.engine.store import to_json

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"


def sarif(audit: Audit, judged: Sequence[Judged], root: Path | None = None) -> str:
    """The SARIF log of an audit and its gates; `root` is the repository's folder, by default the current."""
    location = _location(audit, root or Path.cwd())
    rules = _rules(audit, judged)
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    rows = [*_gates(audit, judged), *map(_found, findings(audit))]
    results = [
        {**row, "ruleIndex": places[row["ruleId"]], "locations": [{"physicalLocation": location}]}
        for row in rows
    ]
    run = {
        "tool": {"driver": {"name": "holdfast", **_version(audit), "rules": rules}},
        "invocations": [_invocation(audit)],
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": {"model": audit.model, "data": audit.data, "versions": audit.versions},
    }
    return to_json({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=True).decode()


def model_uri(path: str, root: Path) -> str:
    """The path as a URI reference: relative and percent-encoded below `root`, else a file URI."""
    file = Path(path)
    if not file.is_absolute():
        return _quoted(file.as_posix())
    if file.is_relative_to(root):
        return _quoted(file.relative_to(root).as_posix())
    return "file://" + _quoted("/" + file.as_posix().lstrip("/"))


def _quoted(path: str) -> str:
    """The path percent-encoded, a name that is no UTF-8 by its bytes."""
    return quote(path, errors="surrogateescape")


def _location(audit: Audit, root: Path) -> dict[str, Any]:
    path = str(audit.model.get("path") or audit.model.get("name", ""))
    # An ONNX file has no lines; code scanning shows nothing that has no first line.
    region = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
    return {"artifactLocation": {"uri": model_uri(path, root)}, "region": region}


def _rules(audit: Audit, judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """One rule a pattern of the names in the gates, then one a kind of finding."""
    patterns = dict.fromkeys(required_pattern(one.gate.name, audit) for one in judged)
    gates = [
        _rule(f"gate/{p.text}", f"Gate on {p.text}: {p.meaning}.", f"Unit: {p.unit}.", "error")
        for p in patterns
    ]
    own = [_rule(kind, text, "A finding of the audit, no gate.", "warning") for kind, text in KINDS.items()]
    return [*gates, *own]


def _rule(name: str, short: str, more: str, level: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": short},
        "fullDescription": {"text": f"{short} {more}"},
        "help": {"text": f"{short} {more} The command that gives the number again is in the result."},
        "defaultConfiguration": {"level": level},
    }


def _gates(audit: Audit, judged: Sequence[Judged]) -> list[dict[str, Any]]:
    sources = measured(audit)
    rows = []
    for one in judged:
        if not one.failed and one.decided:
            continue
        source = sources.get(one.gate.name)
        command = source.command if source else audit.command
        numbers = {
            "gate": one.gate.text, "value": one.value, "bound": one.gate.bound, "reason": one.reason,
            "images": one.images,
        }  # fmt: skip
        level = "error" if one.failed else "note"
        rule = f"gate/{required_pattern(one.gate.name, audit).text}"
        rows.append(_result(rule, level, f"Gate {sentence(one)}.", one.gate.text, numbers, command))
    return rows


def _found(finding: Finding) -> dict[str, Any]:
    one = finding
    return _result(one.kind, one.level, one.text, one.key, one.numbers, one.command)


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


def _version(audit: Audit) -> dict[str, str]:
    version = audit.versions.get("holdfast", "")
    return {"version": version} if version else {}


def _invocation(audit: Audit) -> dict[str, Any]:
    """How it was called; what was left out and which images failed are its notifications."""
    left = [("note", f"{p.name}: left out: {p.left_out}") for p in audit.parts if p.left_out]
    failed = [("warning", f"failed image: {name}") for name in audit.failed]
    told = [{"level": level, "message": {"text": text}} for level, text in (*left, *failed)]
    line = {"commandLine": audit.command} if audit.command else {}
    return {"executionSuccessful": True, **line, "toolExecutionNotifications": told}

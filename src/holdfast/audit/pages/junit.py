"""An audit as JUnit XML, which every CI system shows as a list of tests: one testcase a gate.

Without gates nothing is judged, so nothing passes or fails: then the parts of the audit are listed, those
left out as skipped with their reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from holdfast.audit.gates import Judged
from holdfast.audit.pages.gates import called, sentence
from holdfast.audit.result import Audit, Part
from holdfast.audit.values import measured

# XML 1.0 has no place for these, escaped or not; most parsers refuse the whole file for one of them.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(audit: Audit, judged: Sequence[Judged]) -> str:
    """The JUnit XML of an audit and its gates."""
    cases = _gates(audit, judged) if judged else [_part(part) for part in audit.parts]
    count = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": f"{audit.seconds:.3f}",
    }
    name = f"holdfast audit {audit.model.get('name', '')} on {audit.data.get('name', '')}"
    suite = _element("testsuite", {"name": name, **count, **_timestamp(audit.created)})
    suite.append(_properties(audit))
    suite.extend(cases)
    if audit.notes:
        suite.append(_element("system-out", text="\n".join(audit.notes)))
    if audit.failed:
        suite.append(_element("system-err", text="\n".join(f"failed image: {name}" for name in audit.failed)))
    whole = _element("testsuites", {"name": "holdfast", **count})
    whole.append(suite)
    ET.indent(whole)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(whole, encoding="unicode")}\n'


def _gates(audit: Audit, judged: Sequence[Judged]) -> list[ET.Element]:
    sources = measured(audit)
    cases = []
    for one in judged:
        engine = one.gate.name.partition(".")[0]
        case = _element("testcase", {"name": called(one), "classname": f"holdfast.{engine}", "time": "0.000"})
        source = sources.get(one.gate.name)
        command = source.command if source else audit.command
        if one.failed:
            again = f"\nreproduce: {command}" if command else ""
            kind = {"message": sentence(one), "type": "not measured" if one.value is None else "gate"}
            case.append(_element("failure", kind, f"fail if {one.gate.text}\n{sentence(one)}{again}"))
        elif not one.decided:
            case.append(_element("skipped", {"message": sentence(one)}))
        else:
            case.append(_element("system-out", text=sentence(one)))
        cases.append(case)
    return cases


def _part(part: Part) -> ET.Element:
    told = {"name": part.name, "classname": "holdfast.audit", "time": f"{part.seconds:.3f}"}
    case = _element("testcase", told)
    if part.left_out and not part.images:
        case.append(_element("skipped", {"message": part.left_out}))
    else:
        ran = f"ran on {part.images} of {part.of} images" if part.images else "ran"
        left = f"; left out: {part.left_out}" if part.left_out else ""
        again = f"\nreproduce: {part.command}" if part.command else ""
        case.append(_element("system-out", text=f"{ran}{left}{again}"))
    return case


def _properties(audit: Audit) -> ET.Element:
    told = {
        "model": audit.model.get("path", ""),
        "model.sha256": audit.model.get("sha256", ""),
        "data": audit.data.get("name", ""),
        "command": audit.command,
        **{f"version.{name}": version for name, version in audit.versions.items()},
    }
    properties = _element("properties")
    for name, value in told.items():
        properties.append(_element("property", {"name": name, "value": str(value)}))
    return properties


def _timestamp(created: str) -> dict[str, str]:
    """The schema's form, in UTC and without an offset; nothing if the audit does not tell."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return {}
    utc = moment.astimezone(UTC) if moment.tzinfo else moment
    return {"timestamp": utc.replace(tzinfo=None).isoformat(timespec="seconds")}


def _element(tag: str, attributes: dict[str, str] | None = None, text: str = "") -> ET.Element:
    made = ET.Element(tag, {key: _legal(value) for key, value in (attributes or {}).items()})
    made.text = _legal(text) or None
    return made


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)

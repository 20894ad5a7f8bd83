"""holdfast tells whether a perception model still works where it is deployed.

This module is the one public door. Names load on first use, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

from holdfast._version import __version__

TYPE_CHECKING = False  # as type checkers know it; to import `typing` would take most of the time
if TYPE_CHECKING:
    from typing import Any

    from holdfast.attack.types import Limits, Method
    from holdfast.core.dataset import Dataset
    from holdfast.core.errors import HoldfastError
    from holdfast.core.frame import Frame
    from holdfast.core.model import Card, Head, Input, Model, Network
    from holdfast.core.patch import OnBoxes, Patch, Spot
    from holdfast.core.patch import apply as apply_patch
    from holdfast.core.pipeline import Machine, Noise, Pipeline, open_machine, pipeline_of
    from holdfast.core.property import Property, Rows
    from holdfast.core.registry import stage
    from holdfast.core.seeds import generator
    from holdfast.core.threat import Box, PatchAnywhere, Threat, linf_ball
    from holdfast.core.types import Boxes, Detections, Label, LabelMap, MaskFile, Sample, Scores, Size
    from holdfast.core.verdict import Budget, Verdict, settle
    from holdfast.data.open import open_dataset
    from holdfast.data.patchfile import read_patch
    from holdfast.graph.load import load_model
    from holdfast.metrics.rules import RULES, Rule
    from holdfast.report.html import write as write_report
    from holdfast.report.notebook import show
    from holdfast.run.attack.measure import attack as attack_data
    from holdfast.run.attack.plan import AttackPlan
    from holdfast.run.audit.result import Audit, open_audit
    from holdfast.run.evaluate import Plan, evaluate
    from holdfast.run.evaluation import Evaluation, open_run
    from holdfast.run.noise.choose import Wanted
    from holdfast.run.noise.suite import NoisePlan
    from holdfast.run.noise.suite import measure as measure_noise
    from holdfast.run.noise.suite import prepare as prepare_noise
    from holdfast.run.score import Settings
    from holdfast.verify.decide import verify
    from holdfast.verify.vnnlib import Spec, parse_vnnlib, print_vnnlib, property_of, read_vnnlib

_HOMES = {
    "RULES": "metrics.rules",
    "AttackPlan": "run.attack.plan",
    "Audit": "run.audit.result",
    "Box": "core.threat",
    "Boxes": "core.types",
    "Budget": "core.verdict",
    "Card": "core.model",
    "Dataset": "core.dataset",
    "Detections": "core.types",
    "Evaluation": "run.evaluation",
    "Frame": "core.frame",
    "Head": "core.model",
    "HoldfastError": "core.errors",
    "Input": "core.model",
    "Label": "core.types",
    "LabelMap": "core.types",
    "Limits": "attack.types",
    "Machine": "core.pipeline",
    "MaskFile": "core.types",
    "Method": "attack.types",
    "Model": "core.model",
    "Network": "core.model",
    "Noise": "core.pipeline",
    "NoisePlan": "run.noise.suite",
    "OnBoxes": "core.patch",
    "Patch": "core.patch",
    "PatchAnywhere": "core.threat",
    "Pipeline": "core.pipeline",
    "Plan": "run.evaluate",
    "Property": "core.property",
    "Rows": "core.property",
    "Rule": "metrics.rules",
    "Sample": "core.types",
    "Scores": "core.types",
    "Settings": "run.score",
    "Size": "core.types",
    "Spec": "verify.vnnlib",
    "Spot": "core.patch",
    "Threat": "core.threat",
    "Verdict": "core.verdict",
    "Wanted": "run.noise.choose",
    "apply_patch": "core.patch:apply",
    "attack_data": "run.attack.measure:attack",
    "evaluate": "run.evaluate",
    "generator": "core.seeds",
    "linf_ball": "core.threat",
    "load_model": "graph.load",
    "measure_noise": "run.noise.suite:measure",
    "open_audit": "run.audit.result",
    "open_dataset": "data.open",
    "open_machine": "core.pipeline",
    "open_run": "run.evaluation",
    "parse_vnnlib": "verify.vnnlib",
    "pipeline_of": "core.pipeline",
    "prepare_noise": "run.noise.suite:prepare",
    "print_vnnlib": "verify.vnnlib",
    "property_of": "verify.vnnlib",
    "read_patch": "data.patchfile",
    "read_vnnlib": "verify.vnnlib",
    "settle": "core.verdict",
    "show": "report.notebook",
    "stage": "core.registry",
    "verify": "verify.decide",
    "write_report": "report.html:write",
}

__all__ = [
    "RULES",
    "AttackPlan",
    "Audit",
    "Box",
    "Boxes",
    "Budget",
    "Card",
    "Dataset",
    "Detections",
    "Evaluation",
    "Frame",
    "Head",
    "HoldfastError",
    "Input",
    "Label",
    "LabelMap",
    "Limits",
    "Machine",
    "MaskFile",
    "Method",
    "Model",
    "Network",
    "Noise",
    "NoisePlan",
    "OnBoxes",
    "Patch",
    "PatchAnywhere",
    "Pipeline",
    "Plan",
    "Property",
    "Rows",
    "Rule",
    "Sample",
    "Scores",
    "Settings",
    "Size",
    "Spec",
    "Spot",
    "Threat",
    "Verdict",
    "Wanted",
    "__version__",
    "apply_patch",
    "attack_data",
    "evaluate",
    "generator",
    "linf_ball",
    "load_model",
    "measure_noise",
    "open_audit",
    "open_dataset",
    "open_machine",
    "open_run",
    "parse_vnnlib",
    "pipeline_of",
    "prepare_noise",
    "print_vnnlib",
    "property_of",
    "read_patch",
    "read_vnnlib",
    "settle",
    "show",
    "stage",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    import importlib

    module, _, inside = home.partition(":")
    return getattr(importlib.import_module(f"holdfast.{module}"), inside or name)


def __dir__() -> list[str]:
    return list(__all__)

"""holdfast tells whether a perception model still works where it is deployed.

This module is the one public door. Names load on first use, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

from holdfast._version import __version__

# Importing a package binds its name on the parent, over a function of the same name. Import these (empty)
# packages first and drop the names, so that `holdfast.evaluate` and `holdfast.verify` are the functions.
for _package in ("evaluate", "verify"):
    __import__(f"holdfast.{_package}")
    del globals()[_package]

TYPE_CHECKING = False  # as type checkers know it; to import `typing` would take most of the time
if TYPE_CHECKING:
    from typing import Any

    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.run import attack as attack_data
    from holdfast.attack.types import Limits, Method
    from holdfast.audit.page import show
    from holdfast.audit.result import Audit, open_audit
    from holdfast.core.dataset import Dataset
    from holdfast.core.errors import HoldfastError
    from holdfast.core.fingerprint import generator
    from holdfast.core.frame import Frame
    from holdfast.core.model import Card, Head, Input, Model, Network
    from holdfast.core.patch import OnBoxes, Patch, Position
    from holdfast.core.patch import apply as apply_patch
    from holdfast.core.pipeline import LoadedPipeline, Noise, Pipeline, load_pipeline, pipeline_of
    from holdfast.core.property import (
        Budget,
        InputBox,
        LinearConstraints,
        PatchAnywhere,
        Property,
        Threat,
        Verdict,
        confirm,
        linf_ball,
    )
    from holdfast.core.registry import stage
    from holdfast.core.types import Boxes, Detections, Label, LabelMap, MaskFile, Sample, Scores, Size
    from holdfast.data.open import open_dataset
    from holdfast.data.patchfile import read_patch
    from holdfast.evaluate.page import write as write_report
    from holdfast.evaluate.result import Evaluation, open_run
    from holdfast.evaluate.run import Plan, evaluate
    from holdfast.evaluate.score import Settings
    from holdfast.graph.load import load_model
    from holdfast.metrics.rules import RULES, APRule
    from holdfast.noise.suite import NoiseSelection
    from holdfast.noise.vision.run import NoisePlan
    from holdfast.noise.vision.run import measure as measure_noise
    from holdfast.noise.vision.run import prepare as prepare_noise
    from holdfast.verify.run import verify
    from holdfast.verify.vnnlib import Spec, parse_vnnlib, print_vnnlib, property_of, read_vnnlib

_HOMES = {
    "RULES": "metrics.rules",
    "AttackPlan": "attack.plan",
    "Audit": "audit.result",
    "InputBox": "core.property",
    "Boxes": "core.types",
    "Budget": "core.property",
    "Card": "core.model",
    "Dataset": "core.dataset",
    "Detections": "core.types",
    "Evaluation": "evaluate.result",
    "Frame": "core.frame",
    "Head": "core.model",
    "HoldfastError": "core.errors",
    "Input": "core.model",
    "Label": "core.types",
    "LabelMap": "core.types",
    "Limits": "attack.types",
    "LoadedPipeline": "core.pipeline",
    "MaskFile": "core.types",
    "Method": "attack.types",
    "Model": "core.model",
    "Network": "core.model",
    "Noise": "core.pipeline",
    "NoisePlan": "noise.vision.run",
    "NoiseSelection": "noise.suite",
    "OnBoxes": "core.patch",
    "Patch": "core.patch",
    "PatchAnywhere": "core.property",
    "Pipeline": "core.pipeline",
    "Plan": "evaluate.run",
    "Property": "core.property",
    "LinearConstraints": "core.property",
    "APRule": "metrics.rules",
    "Sample": "core.types",
    "Scores": "core.types",
    "Settings": "evaluate.score",
    "Size": "core.types",
    "Spec": "verify.vnnlib",
    "Position": "core.patch",
    "Threat": "core.property",
    "Verdict": "core.property",
    "apply_patch": "core.patch:apply",
    "attack_data": "attack.run:attack",
    "evaluate": "evaluate.run",
    "generator": "core.fingerprint",
    "linf_ball": "core.property",
    "load_model": "graph.load",
    "measure_noise": "noise.vision.run:measure",
    "open_audit": "audit.result",
    "open_dataset": "data.open",
    "load_pipeline": "core.pipeline",
    "open_run": "evaluate.result",
    "parse_vnnlib": "verify.vnnlib",
    "pipeline_of": "core.pipeline",
    "prepare_noise": "noise.vision.run:prepare",
    "print_vnnlib": "verify.vnnlib",
    "property_of": "verify.vnnlib",
    "read_patch": "data.patchfile",
    "read_vnnlib": "verify.vnnlib",
    "confirm": "core.property",
    "show": "audit.page",
    "stage": "core.registry",
    "verify": "verify.run",
    "write_report": "evaluate.page:write",
}

__all__ = [
    "RULES",
    "APRule",
    "AttackPlan",
    "Audit",
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
    "InputBox",
    "Label",
    "LabelMap",
    "Limits",
    "LinearConstraints",
    "LoadedPipeline",
    "MaskFile",
    "Method",
    "Model",
    "Network",
    "Noise",
    "NoisePlan",
    "NoiseSelection",
    "OnBoxes",
    "Patch",
    "PatchAnywhere",
    "Pipeline",
    "Plan",
    "Position",
    "Property",
    "Sample",
    "Scores",
    "Settings",
    "Size",
    "Spec",
    "Threat",
    "Verdict",
    "__version__",
    "apply_patch",
    "attack_data",
    "confirm",
    "evaluate",
    "generator",
    "linf_ball",
    "load_model",
    "load_pipeline",
    "measure_noise",
    "open_audit",
    "open_dataset",
    "open_run",
    "parse_vnnlib",
    "pipeline_of",
    "prepare_noise",
    "print_vnnlib",
    "property_of",
    "read_patch",
    "read_vnnlib",
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

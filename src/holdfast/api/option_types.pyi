"""Types of the keywords of the public functions. Written by tools/option_types.py: do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Required, TypedDict

from holdfast.api.data import DataLike
from holdfast.core.model import Card

class EvaluateKeywords(TypedDict, total=False):
    rule: str | None
    iou: float | None
    score: float | None
    slice_: str | Sequence[str]
    slice_file: str | Path | None
    card: str | Path | Card | None
    format: str | None
    split: str | None
    images: int | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    stage: str | Sequence[str]
    provider: str | Sequence[str]
    defend: str | None
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    runs: str | Path
    strict: bool
    deploy_model: str | Path | None
    json: str | Path | None
    out: str | Path | None
    predictions_out: str | Path | None
    per_image: str | Path | None
    truth: str | Path | None
    predictions: str | Path | None

class NoiseKeywords(TypedDict, total=False):
    only: str | Sequence[str]
    skip: str | Sequence[str]
    all: bool
    suite: Literal["default", "paper", "corruptions"]
    use: str | Path | Sequence[str | Path]
    calibration: str | DataLike | None
    calibration_images: int
    rule: str
    format: str | None
    split: str | None
    images: int | None
    slice_: str | Sequence[str]
    slice_file: str | Path | None
    provider: str | Sequence[str]
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    defend: str | None
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    runs: str | Path
    strict: bool
    json: str | Path | None
    out: str | Path | None
    deploy_model: str | Path | None
    predictions_out: str | Path | None
    per_image: str | Path | None
    card: str | Path | Card | Sequence[str | Path | Card]

class DiagnoseKeywords(TypedDict, total=False):
    use: str | Path | Sequence[str | Path]
    calibration: str | None
    calibration_images: int
    rule: str
    card: str | Path | Card | None
    format: str | None
    split: str | None
    images: int | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    deploy_model: str | Path | None
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    runs: str | Path
    train: str
    deploy: str
    train_exif: bool
    predictions: str | Path | None
    layers: bool
    json: str | Path | None
    out: str | Path | None

class AttackKeywords(TypedDict, total=False):
    pixels: int
    amplitude: int
    regions: int
    seconds: float
    steps: int
    restarts: int
    mask: str
    shape: Literal["pixels", "square", "circle", "sign"]
    size: str | None
    sign_size: str | None
    anywhere: bool
    contiguous: bool
    goal: Literal["vanish", "mislabel", "fabricate"]
    shrink: bool
    black_box: bool
    universal: Literal["none", "spot", "boxes"]
    transform: str | Sequence[str]
    deployment: str | Sequence[str]
    surrogate: str | Sequence[str]
    diverse: bool
    unseen: str | Sequence[str]
    score: float
    iou: float
    nms_iou: float
    rule: str
    stage: str | Sequence[str]
    defend: str | None
    features: str
    card: str | Path | Card | None
    format: str | None
    split: str | None
    images: int | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    seed: int
    page: bool
    json: str | Path | None

class VerifyKeywords(TypedDict, total=False):
    timeout: float
    json: str | Path | None
    witness: str | Path | None
    jobs: int | None
    memory: float | None
    seed: int

class AuditKeywords(TypedDict, total=False):
    only: (
        Literal["evaluate", "noise", "attack", "squares", "specs", "matrix", "recheck", "combine"]
        | Sequence[Literal["evaluate", "noise", "attack", "squares", "specs", "matrix", "recheck", "combine"]]
    )
    budget: str
    defend: str | None
    noise_images: int | None
    attack_images: int | None
    square_images: int | None
    places: int
    square: float
    pixels: int | Sequence[int]
    shape: Literal["square", "circle", "sign"]
    size: str
    sign_size: str | None
    steps: int
    spec: str | Path | Sequence[str | Path]
    target: Literal["tensorrt", "tflite", "openvino", "onnxruntime", "ncnn"] | None
    rule: str
    calibration: str | DataLike | None
    card: str | Path | Card | None
    format: str | None
    split: str | None
    images: int | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    seed: int
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    runs: str | Path
    predictions_out: str | Path | None
    per_image: str | Path | None
    fail_if: str | Sequence[str]
    gates: str | Path | None
    min_images: int
    json: str | Path | None
    junit: str | Path | None
    sarif: str | Path | None

class CompareKeywords(TypedDict, total=False):
    json: str | Path | None
    out: str | Path | None

class CertifyKeywords(TypedDict, total=False):
    card: str | Path | Card | None
    format: str | None
    split: str | None
    images: int | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    stage: str | Sequence[str]
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    runs: str | Path
    strict: bool
    json: str | Path | None
    out: str | Path | None
    patch: str
    threat: Literal["decoded", "scene", "input"]
    overlap: float
    lines: int
    squares: int
    masks: Literal["scene", "input"]
    score: float
    alpha: float | None
    beta: float
    prune: float
    false_boxes: float
    calibration: str | DataLike | None
    calibration_images: int
    attack: int

class ContestInitKeywords(TypedDict, total=False):
    format: str | None
    split: str | None
    jobs: int
    data: str
    model: str
    members: str | None
    images: int
    seed: int
    name: str | None
    baselines: bool
    pixels: int
    rule: str
    score: float
    nms_iou: float
    vote: int | None
    vote_iou: float
    features: str
    distance_min: float
    distance_max: float | None

class ContestValidateKeywords(TypedDict, total=False):
    lang: Literal["en", "zh"]
    jobs: int
    json: str | Path | None

class ContestPackKeywords(TypedDict, total=False):
    lang: Literal["en", "zh"]
    jobs: int
    team: Required[str]
    out: str | Path
    contest: str | Path | None

class ContestScoreKeywords(TypedDict, total=False):
    lang: Literal["en", "zh"]
    jobs: int
    store: str | None
    part: str | None
    on: str | None
    json: str | Path | None
    csv: str | Path | None
    keep: bool
    dry_run: bool

class ContestBoardKeywords(TypedDict, total=False):
    json: str | Path | None
    html: str | Path | None
    history: bool

class ContestRescoreKeywords(TypedDict, total=False):
    jobs: int

class ContestShowKeywords(TypedDict, total=False):
    jobs: int
    images: int
    out: str | Path

class PatchbenchMakeKeywords(TypedDict, total=False):
    card: str | Path | None
    format: str | None
    split: str | None
    map: Mapping[str, str]
    classes: Literal["all", "common"]
    model: str
    data: str
    images: int
    seed: int
    held_out: bool
    patch: int | Sequence[int]
    content: str
    positions: str | None
    strict: bool

class PatchbenchCheckKeywords(TypedDict, total=False):
    json: str | Path | None

class PatchbenchEvaluateKeywords(TypedDict, total=False):
    card: str | Path | None
    patch: int | None
    content: str | None
    strict: bool
    images: int | None
    jobs: int
    json: str | Path | None
    out: str | Path | None

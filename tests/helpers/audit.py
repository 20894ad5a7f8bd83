"""An audit as data, for tests of what is made of one: gates, pages, comparisons."""

from __future__ import annotations

from dataclasses import replace

from holdfast.audit.result import (
    NO_THREAT,
    TRAINED,
    AttackLevel,
    Audit,
    Clean,
    ImageRobustness,
    Matrix,
    MatrixCell,
    NoiseResult,
    Part,
    Proof,
    Recheck,
    RobustnessBounds,
)

NAMES = tuple(f"scene-{n}.jpg" for n in range(8))
THREATS = (NO_THREAT, "square", "100px", "1000px")
DEPLOYMENTS = (TRAINED, "resize=opencv-nearest", "precision=int8")


def sample_audit() -> Audit:
    """A small audit in which every kind of row appears."""
    return Audit(
        model={"name": "net", "path": "net.onnx", "sha256": "ab" * 32, "task": "detect", "classes": 3},
        data={"name": "scenes", "images": 40, "source": {"data": "scenes"}},
        clean=Clean(
            "map50",
            "mAP@.5",
            0.91,
            0.88,
            0.94,
            40,
            "VOC, all points",
            {"recall": 0.93},
            "holdfast evaluate net.onnx scenes --rule voc",
        ),
        noises=(
            NoiseResult(
                "resize=opencv-nearest",
                "resize",
                "measured",
                5.0,
                2.0,
                8.0,
                21,
                40,
                "",
                "holdfast noise net.onnx scenes --only resize=opencv-nearest",
            ),
            NoiseResult(
                "precision=int8", "precision", "measured", 1.0, -1.0, 3.0, 9, 40, "static, 20 images"
            ),
            NoiseResult(
                "decode=opencv", "decode", "identical", note="bit for bit the same input on all images"
            ),
            NoiseResult("ceil=flip", "ceil", "no effect", note="no pool whose size could differ"),
        ),
        combined=NoiseResult(
            "resize=opencv-nearest + precision=int8", "combined", "measured", 9.0, 5.0, 13.0, 30, 40
        ),
        attacks=(
            AttackLevel(
                "100px",
                100,
                0.92,
                0.70,
                8,
                2,
                8,
                71.5,
                "gradient, top-gradient, 40 steps",
                "holdfast attack …",
            ),
            AttackLevel("1000px", 1000, 0.92, 0.12, 8, 7, 8, 402.0, "gradient, top-gradient, 40 steps"),
        ),
        proofs=tuple(
            Proof(
                "square",
                name,
                "violated" if n < 3 else "holds",
                "enumeration",
                0.4,
                361,
                361,
                5 if n < 3 else 0,
                -0.25 if n < 3 else 0.3,
                (12, 40),
                "",
                "holdfast audit …",
            )
            for n, name in enumerate(NAMES)
        ),
        rechecks=(
            Recheck("square", NAMES[4], "precision=int8", "holds", "violated", 361),
            Recheck("square", NAMES[0], "precision=int8", "violated", "violated", 361),
            Recheck("square", NAMES[1], "precision=fp16", "violated", "violated", 361),
        ),
        bounds=(
            RobustnessBounds(
                "square",
                "a black square of 42 pixels at 361 places",
                "enumeration",
                "enumeration",
                tuple(ImageRobustness(name, n >= 3, n < 3) for n, name in enumerate(NAMES)),
            ),
            RobustnessBounds(
                "1000px",
                "1000 pixels of any colour",
                "",
                "gradient",
                tuple(ImageRobustness(name, False, n < 7) for n, name in enumerate(NAMES)),
            ),
        ),
        matrix=Matrix(
            THREATS,
            DEPLOYMENTS,
            tuple(
                _cell(t, d, row, column)
                for row, t in enumerate(THREATS)
                for column, d in enumerate(DEPLOYMENTS)
            ),
        ),
        parts=(
            Part("evaluate", 40, 40, 2.0, 3.0),
            Part("noise", 40, 40, 20.0, 30.0),
            Part("attack", 8, 40, 60.0, 70.0, "32 of 40 images: 70 s do not take more", "holdfast attack …"),
        ),
        notes=("precision=int8 is calibrated on 20 images that are then not tested",),
        command="holdfast audit net.onnx scenes --budget 5m",
        created="2026-01-02T03:04:05+00:00",
        seconds=101.5,
        budget=300.0,
        versions={"holdfast": "0.1"},
    )


def better_audit() -> Audit:
    """The same model after it was fixed: less noise, fewer images broken."""
    first = sample_audit()
    noises = (replace(first.noises[0], points_lost=1.0, low=-1.0, high=3.0), *first.noises[1:])
    attacks = tuple(replace(s, after=s.after + 0.05, broken=max(0, s.broken - 1)) for s in first.attacks)
    return replace(first, clean=replace(first.clean, value=0.93), noises=noises, attacks=attacks)


def _cell(threat: str, deployment: str, row: int, column: int) -> MatrixCell:
    value = 0.91 - 0.2 * row - 0.03 * column
    if row == 0 or column == 0:
        return MatrixCell(threat, deployment, value, 8, command="holdfast audit …")
    if (row, column) == (1, 2):
        return MatrixCell(threat, deployment, None, 0, note="no images left to calibrate on")
    return MatrixCell(
        threat, deployment, value, 8, 5, 4, 4.0 * column - 8.0, 4.0 * column - 11.0, 4.0 * column - 5.0
    )

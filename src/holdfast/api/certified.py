"""The public function certify: which objects no patch of a size can hide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from holdfast.api.data import DataLike, dataset
from holdfast.api.keywords import keywords
from holdfast.api.model import as_model
from holdfast.api.progress import watch
from holdfast.api.subjects import ModelLike, options_for_call, plan_for_call, take_dataset, write_files
from holdfast.certify.options import CertifyOptions
from holdfast.config.options import carry
from holdfast.config.parser import command_line
from holdfast.evaluate.options import EvaluationOptions

if TYPE_CHECKING:
    from holdfast.api import option_types as types
    from holdfast.certify.classify_result import ClassCertification
    from holdfast.certify.result import Certification


@keywords(CertifyOptions, "model", "data")
def certify(
    model: ModelLike,
    data: DataLike,
    *,
    progress: bool | None = None,
    **options: Unpack[types.CertifyKeywords],
) -> Certification | ClassCertification:
    """Prove which objects no patch of a size can hide, or on which images it cannot change the answer.

    The certificates hold for the wrapped model: `model.defended(result)`.
    """
    from holdfast.certify.classify import certify_classes, class_plan
    from holdfast.certify.run import certify as run
    from holdfast.certify.run import certify_plan, check_task

    loaded = as_model(model, options.pop("card", None))
    check_task(loaded)
    keys: dict[str, Any] = {**options}
    calibration = take_dataset(keys, "calibration")
    given = options_for_call(CertifyOptions, keys, "certify", loaded, data)
    plan = plan_for_call(carry(given, EvaluationOptions), loaded, data, command_line(given))
    if loaded.card.task == "classify":
        return write_files(certify_classes(class_plan(given, plan), watch(progress)), given)
    pool = calibration(loaded.card.task) if calibration else None
    if pool is None and given.calibration:
        pool = dataset(given.calibration, task=loaded.card.task)
    return write_files(run(certify_plan(given, plan, pool), watch(progress)), given)

"""`holdfast certify`: which objects no patch of a size can hide, wherever it is and whatever it shows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.certify.options import CertifyOptions
from holdfast.config.options import carry
from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.stages.masks import PatchSize

if TYPE_CHECKING:
    from holdfast.certify.classify_result import ClassCertification
    from holdfast.certify.result import Certification
    from holdfast.report.tables import Table


def certify(options: CertifyOptions) -> int:
    """Prove what no patch of a size can do, wherever it is and whatever it shows.

    A detector is wrapped by masks: the result is which objects a patch cannot hide. A classifier uses
    double masking: the result is on which images a patch cannot change the answer. The certificates hold for
    the wrapped model. Exit code 4: finished, but some images failed.
    """
    from holdfast.certify.run import certify as certify_boxes
    from holdfast.certify.run import certify_plan, check_task
    from holdfast.data.open import open_dataset
    from holdfast.engine.executor import progress
    from holdfast.evaluate.cli import print_data_notes
    from holdfast.evaluate.options import EvaluationOptions
    from holdfast.evaluate.run import evaluation_plan
    from holdfast.graph.load import load_model

    options.check_output(options.runs)
    model = load_model(options.model, options.card)
    check_task(model)  # before the dataset is read, which would be the wrong error
    PatchSize.parse(options.patch)
    evaluated = evaluation_plan(carry(options, EvaluationOptions), model, command=command_line(options))
    print_data_notes(evaluated)
    if model.card.task == "classify":
        from holdfast.certify.classify import certify_classes, class_plan
        from holdfast.certify.classify_result import class_limits, class_tables

        answers = certify_classes(class_plan(options, evaluated), progress)
        return _finish(options, answers, class_tables(answers), class_limits(answers))
    from holdfast.certify.tables import not_proven, tables

    pool = open_dataset(options.calibration, task="detect") if options.calibration else None
    result = certify_boxes(certify_plan(options, evaluated, pool), progress)
    return _finish(options, result, tables(result), not_proven(result))


def _finish(
    options: CertifyOptions, result: Certification | ClassCertification, shown: list[Table], limits: list[str]
) -> int:
    """Print the tables, write the files and return the exit code."""
    options.write_json(result.to_dict())
    for table in shown:
        options.print_table(table)
        if not options.csv:
            say("")
    if not options.csv:
        say("\n".join(f"Not proven: {text}" for text in limits))
    about = result.about
    sys.stderr.write(f"passes   {about['passes']:g} per image, {about['seconds_per_image']:g} s per image\n")
    for failure in result.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"run      {result.folder}\n")
    if options.out:
        sys.stderr.write(f"report   {result.save(options.out).resolve()}\n")
    return 4 if result.failed else 0

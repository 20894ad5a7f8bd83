"""The noise suite from Python: the embedded classifier, two named noises and one of your own, as a table.

python examples/noise_table.py
"""

import numpy as np

from holdfast import (
    EvaluationPlan,
    NoisePlan,
    NoiseSelection,
    Pipeline,
    load_model,
    measure_noise,
    open_dataset,
    prepare_noise,
)
from holdfast.noise.vision.tables import options_table
from holdfast.report.tables import to_text


def dusk(image: np.ndarray) -> np.ndarray:
    """A quarter of the light, as a sensor with the wrong gain sees it."""
    return image // 4


def wrong_gain(pipeline: Pipeline) -> Pipeline:
    """A noise is a function from pipeline to pipeline."""
    return pipeline.replace(colour=dusk)


if __name__ == "__main__":
    model = load_model("signs-class")
    plan = EvaluationPlan(model, open_dataset("signs:0:100", task=model.card.task), jobs=1)
    wanted = NoiseSelection(only=("resize=opencv-nearest", "decode=fast-idct"))
    noise = prepare_noise(NoisePlan(plan, wanted, own={"wrong gain": wrong_gain}))
    print(to_text(options_table(measure_noise(noise))))

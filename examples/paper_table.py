# %% [markdown]
# # The paper's table for your model
#
# The SysNoise table: the points that a model loses to each stage of a deployed system. Each option replaces
# one stage of the pipeline or rewrites the graph.

# %%
import os

import numpy as np

import holdfast as hf

IMAGES = int(os.environ.get("IMAGES", "100"))
FAMILIES = os.environ.get("FAMILIES", "").split() or None  # None: all
model = hf.load("signs-class")
data = hf.dataset(f"signs:0:{IMAGES}", task="classify")

# %% [markdown]
# ## Every option of one model
# `points_lost` is positive when accuracy falls. The interval is paired on the same images.

# %%
suite = hf.noise(model, data, only=FAMILIES or [])
print(suite.table)
if suite.worst is not None:
    print(f"{suite.worst.label} loses {suite.worst.points_lost:.2f} points")

# %% [markdown]
# ## Several models, one row per model
# This is the table as the paper prints it: one column per noise family. Finished results are reused.

# %%
detectors = hf.noise(["signs-yolo", "signs-plain"], f"signs:0:{IMAGES}", only=["resize=opencv-nearest"])
print(detectors.table)

# %% [markdown]
# ## A stage of your own
# A stage is a plain function. Here: a sensor with the wrong gain.


# %%
def wrong_gain(image: np.ndarray) -> np.ndarray:
    """A quarter of the light."""
    return image // 4


clean = hf.evaluate(model, data)
dark = hf.evaluate(model.deployed(colour=wrong_gain), data)
print(hf.compare(clean, dark).summary)

# %% [markdown]
# ## Results per image
# One row per image and option, to see which images an option breaks.

# %%
hf.noise(model, data, only=["resize=opencv-nearest"], per_image="images.csv")
suite.save("noise.html")
suite.save("noise.csv")

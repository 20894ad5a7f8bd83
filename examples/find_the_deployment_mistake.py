# %% [markdown]
# # Find the deployment mistake
#
# The model is accurate in training and loses accuracy on the target. Which stage of the deployment is the
# cause?

# %%
import os

import numpy as np

import holdfast as hf

IMAGES = int(os.environ.get("IMAGES", "60"))
model = hf.load("signs-yolo")
data = hf.dataset(f"signs:0:{IMAGES}")

# %% [markdown]
# ## You know what the target does
# Name its stages. `diagnose` runs the training pipeline and the deployment next to each other, finds the
# first stage that differs, and measures each difference alone and with it alone fixed.

# %%
target = model.deployed(resize="opencv-nearest", decode="ffmpeg")
cause = hf.diagnose(target, data)
print(cause.verdict)
cause.save("diagnosis.html")

# %% [markdown]
# ## You do not know what the target does
# Dump the input tensor of the target for one image. The dump is compared with what every combination of
# decoder, resize, colour order and normalisation gives. Here the deployed model stands in for the target.

# %%
np.save("target.npy", target.tensor(data[0].data))
found = hf.diagnose(model, data[0], input="target.npy")
print(found.verdict)

# %% [markdown]
# ## Which images does it break?
# Compare the evaluations of both systems: the lists name the images that change sides.

# %%
comparison = hf.compare(hf.evaluate(model, data), hf.evaluate(target, data))
print(comparison.summary)
for listed in comparison.lists:
    print(listed.title, listed.names[:5])

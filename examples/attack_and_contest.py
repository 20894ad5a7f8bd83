# %% [markdown]
# # Attack a detector, and hold a patch contest
#
# A gradient search through the unmodified ONNX file finds few pixels that suppress a detection. A contest
# asks who needs the fewest visible changes.

# %%
import os
import shutil
from pathlib import Path

import holdfast as hf

IMAGES = int(os.environ.get("IMAGES", "16"))
STEPS = int(os.environ.get("STEPS", "60"))
EFFORT = {"steps": STEPS, "shrink": STEPS > 20}  # shrink: then reduce pixels and amplitude as far as possible
model = hf.load("signs-yolo")
data = hf.dataset(f"signs:0:{IMAGES}")

# %% [markdown]
# ## One image
# `pixels` is the largest number of changed pixels. Success means that the target is not detected any more.

# %%
adv = hf.attack(model, data[3], pixels=300, **EFFORT)
print(adv)
print("success", adv.success, "changed pixels", int(adv.patch.mask.sum()))
print("before", model.predict(data[3].data))
print("after ", model.predict(adv.image))

# %% [markdown]
# ## A contiguous patch, and the deployed model
# A square can be printed; scattered pixels cannot. Do the scattered pixels still work under another resize?

# %%
square = hf.attack(model, data[3], pixels=900, mask="square", **EFFORT)
print("square: success", square.success)
print("under another resize:", model.deployed(resize="opencv-area").predict(adv.image))

# %% [markdown]
# ## A contest
# `init` writes numbered images, truth and rules; participants get the folder `public` and hand in a zip.

# %%
contest = hf.contest.init("contest", images=min(IMAGES, 8), pixels=300)
shutil.unpack_archive(Path("contest/public/images.zip"), "entry")
images = next(Path("entry").rglob("1.png")).parent

# %% [markdown]
# This entry attacks the first image and leaves the others as they are.

# %%
attacked = hf.attack(model, "contest", images=1, pixels=300, **EFFORT, out="attacked")
shutil.copy(next(Path("attacked/images").rglob("*.png")), images / "1.png")
archive = hf.contest.pack(images, team="example", contest="contest")
score = hf.contest.score(archive, "contest")
print(f"final score {score.final:.4f}")
print([standing.best.team for standing in hf.contest.board("contest").standings])

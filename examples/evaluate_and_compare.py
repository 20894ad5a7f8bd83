# %% [markdown]
# # Evaluate a model, and compare two versions of it
#
# Replace `MODEL` by the path of your ONNX file and `DATA` by a folder of labelled images. The names used here
# are a detector that comes with holdfast and its embedded scenes, so the notebook runs as it is.

# %%
import os

import holdfast as hf

IMAGES = int(os.environ.get("IMAGES", "100"))
MODEL, DATA = "signs-yolo", f"signs:0:{IMAGES}"

# %% [markdown]
# ## Load the model and look at one prediction
# Without a model card, everything is guessed from the graph; `model.guessed` lists the guesses and reasons.

# %%
model = hf.load(MODEL)
data = hf.dataset(DATA)
print(model, model.guessed)
print(data[3].labels, model.predict(data[3].data))

# %% [markdown]
# ## Evaluate
# Keywords are the options of `holdfast evaluate`. The interval is of the main metric, by bootstrap over the
# images.

# %%
before = hf.evaluate(model, data, rule="voc")
print(before)
print("mAP@.5", before.map50, "95% interval", before.interval)
worst = min(before.per_class.items(), key=lambda pair: pair[1]["AP"] if pair[1]["AP"] is not None else 1.0)
print("worst class:", worst[0], worst[1]["AP"])

# %% [markdown]
# ## Compare with the deployed model
# `deployed` replaces stages of the pipeline. Calibration images for int8 are taken from images that are not
# tested on; pass `calibration=` to choose them. The difference is paired on the same images.

# %%
after = hf.evaluate(model.deployed(precision="int8", resize="opencv-nearest"), data, rule="voc")
comparison = hf.compare(before, after)
print(comparison.summary)
for change in comparison.worse[:5]:
    print(change.words)

# %% [markdown]
# ## Save
# `.html` is a page for people, `.json` has all values, `.csv` the table; `to_pandas()` gives a data frame.

# %%
before.save("evaluation.html")
comparison.save("comparison.html")
after.save("classes.csv")

"""The reference stages of the pipeline, as in a training system; each is one registered function."""

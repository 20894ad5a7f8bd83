"""The reference stages of the pipeline: what a training system does, one registered function each."""

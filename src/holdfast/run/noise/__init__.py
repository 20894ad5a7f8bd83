"""The noise suite: many pipelines of one model on one data set, sharing what they have in common."""

"""The vocabulary every layer speaks: types, pipeline, model, threat, property, verdict, errors."""

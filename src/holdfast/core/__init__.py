"""Shared definitions of all layers: types, pipeline, model, threat, property, verdict, errors."""

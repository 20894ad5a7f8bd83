"""Sections of the evaluation page, by task."""

"""Sections of the audit page."""

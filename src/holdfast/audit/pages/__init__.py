"""Sections of the audit page, and its results for CI: JUnit and SARIF."""

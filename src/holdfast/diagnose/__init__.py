"""Diagnosis: where training and deployment differ, and what each difference costs."""

"""Gradient estimators under the magnifying glass: against enumeration, and on trained models and real text."""

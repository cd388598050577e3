"""Regression models, one file each: what the clients' weights multiply.

A model's module has ``make_features(model, input_dimension, dimension)``, the
:class:`psofed.fleet.features.FeatureMap` z(x) of ŷ = wᵀz(x).
"""

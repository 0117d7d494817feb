"""Rows and places, experts, scaling, validation: what the model is given."""

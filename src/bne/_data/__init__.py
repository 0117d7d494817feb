"""The data of the model: rows and places, experts, scaling, validation."""

"""Hamiltonian Monte Carlo for any log density. Nothing here knows the model."""

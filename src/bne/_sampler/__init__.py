"""Hamiltonian Monte Carlo of any log density; it knows no model."""

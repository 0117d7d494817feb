"""What users ask of a fitted model: uncertainty, bias, weights, tables."""

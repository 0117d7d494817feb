"""Rotations that make features nearly orthogonal, smoothly in the length-scale."""

import numpy as np
from scipy import linalg

from bne._base.typing import Array


def principal_rotations(table: Array, reference: int) -> Array:
    """Rotations (J, m, m) that make the features' columns nearly orthogonal at every node.

    At the node `reference` they are the eigenvectors of ``A^T A``; from there outwards each is the
    rotation that keeps the features closest to its neighbour's (Procrustes), so that the rotated
    features are smooth in the length-scale, and then turned a little towards the eigenvectors.
    Samplers then see coordinates that are nearly independent, whatever the length-scale.
    """
    J, _, m = table.shape
    rotations = np.empty((J, m, m))
    A = table[reference]
    rotations[reference] = linalg.eigh(A.T @ A)[1][:, ::-1]
    for step, nodes in ((1, range(reference + 1, J)), (-1, range(reference - 1, -1, -1))):
        for j in nodes:
            neighbour = table[j - step] @ rotations[j - step]
            U, _, Vt = linalg.svd(table[j].T @ neighbour)
            rotations[j] = _turned(U @ Vt, table[j].T @ table[j])
    return rotations


MAX_TURN = 0.05
"""Radians in a step of `_turned`: features that turn fast lose variance between two nodes."""


def _turned(rotation: Array, gram: Array) -> Array:
    """A rotation with columns nearer to eigenvectors of `gram`, by three small steps.

    A step turns every pair of columns by about the angle that makes them orthogonal in `gram`. A
    pair that is nearly alike in it turns by less, since its eigenvectors may be any; and so do
    columns that `gram` hardly sees.
    """
    for _ in range(3):
        G = rotation.T @ gram @ rotation
        size = np.diag(G)
        gap = size - size[:, None]
        blur = 0.09 * (size + size[:, None]) ** 2 + 1e-4 * np.max(size) ** 2
        turn = G * gap / np.maximum(gap**2 + blur, np.finfo(float).tiny)
        turn *= MAX_TURN / max(MAX_TURN, np.max(np.abs(turn)))
        Q, R = linalg.qr(np.eye(len(G)) + turn)
        rotation = rotation @ (Q * np.sign(np.diag(R)))
    return rotation

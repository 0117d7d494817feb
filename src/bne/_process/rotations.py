"""Rotations that make features nearly orthogonal, and that vary smoothly with the length-scale."""

import numpy as np
from scipy import linalg

from bne._base.typing import Array


def principal_rotations(table: Array, reference: int) -> Array:
    """Find rotations (J, m, m) that make the columns of features nearly orthogonal at every node.

    At the node `reference`, the rotation is the matrix of eigenvectors of ``A^T A``. From there
    outwards, each node gets the rotation that keeps its features closest to those of the node
    before (Procrustes). So the rotated features vary smoothly with the length-scale. Then it is
    turned a little towards the eigenvectors. The coordinates of the sampler are then nearly
    independent at every length-scale.

    Parameters
    ----------
    table : (J, N, m) array
        Features A of N rows at every node.
    reference : int
        Node from which to start.
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
"""Largest angle of a step of `_turned`, in radians.

Features that turn fast from node to node would lose variance where they are interpolated.
"""


def _turned(rotation: Array, gram: Array) -> Array:
    """Turn the columns of a rotation towards eigenvectors of `gram`, in three small steps.

    A step turns every pair of columns by about the angle that makes them orthogonal in `gram`. A
    pair with nearly equal sizes in `gram` turns by less, because its eigenvectors are not well
    determined. Columns with a small size in `gram` also turn by less.
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

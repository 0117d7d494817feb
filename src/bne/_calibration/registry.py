"""The constructions of G by name. To add one, add a line here and a file with the class."""

from importlib import import_module

from bne._calibration.construction import Construction

HOMES = {
    "logistic": ("bne._calibration.logistic", "Logistic"),
    "cgp": ("bne._calibration.cgp", "ConstrainedGP"),
}
"""Module and class of each construction, which is imported when it is first needed."""


def construction(name: str) -> Construction:
    """Make the construction with this name."""
    module, kind = HOMES[name]
    return getattr(import_module(module), kind)()


def name_of(value: object) -> str | None:
    """Return the name of a construction, or None for anything else."""
    kind = (type(value).__module__, type(value).__name__)
    return next((name for name, home in HOMES.items() if home == kind), None)

"""One file an experiment, with the card that shows its results."""

from backend.evaluation.experiment import Experiment
from backend.registry import Registry

experiments: Registry[Experiment] = Registry("backend.evaluation.experiments", Experiment)

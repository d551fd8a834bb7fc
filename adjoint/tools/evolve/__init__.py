"""Evolution of networks: topologies that change while trained weights and optimizer state stay.

`Evolution(space, task)` evolves a population. A space says which individuals there are: `NEAT`
(nodes and connections) or `Modules` (layers that grow without changing what they compute). A task
scores them, and trains them by gradients where it is asked to. A selection makes the next
generation: `Species`, or `NSGA2` for several objectives.

Everything here is written on public names of `adjoint`.

>>> from adjoint import evolve
>>> x = ad.tensor([[0., 0.], [0., 1.], [1., 0.], [1., 1.]])
>>> task = evolve.Supervised(x, ad.tensor([[0.], [1.], [1.], [1.]]))
>>> run = evolve.Evolution(evolve.NEAT(2, 1), task, size=20, seed=1)
>>> best = run.run(10, goal=-0.1)
"""

from .errors import EvolutionError
from .evolution import Evolution
from .genome import Genome, Innovations, Link
from .growing import deeper, narrower, wider
from .module_space import Individual, Modules
from .mutations import mutation
from .neat import NEAT
from .network import ACTIVATIONS, Network, Networks, unroll
from .pareto import NSGA2, crowding, fronts
from .pictures import graph_of
from .species import Species
from .tasks import Episodes, Fitness, Supervised

__all__ = [
    "ACTIVATIONS", "NEAT", "NSGA2", "Episodes", "Evolution", "EvolutionError", "Fitness", "Genome",
    "Individual", "Innovations", "Link", "Modules", "Network", "Networks", "Species", "Supervised",
    "crowding", "deeper", "fronts", "graph_of", "mutation", "narrower", "unroll", "wider",
]  # fmt: skip

"""How long an idle OpenMP thread spins before it sleeps, set before torch starts its threads.

The kernels run on the same threads, which wait for one another six times a layer for each decoded token. libgomp's
default spins for long: best on an idle machine, but where a browser shares two cores the spinning thread holds the
core that the awaited one needs. Sleeping at once costs an eighth on an idle machine. A short spin keeps most of both.
A value set in the environment wins.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")

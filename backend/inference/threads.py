"""How many OpenMP threads there are and how long an idle one spins before it sleeps, set before torch starts them.

OpenMP takes a thread for each processor that it may run on. Under a container's quota these would share the time of
fewer, and be stopped together amid a product that each waits for: there are as many as the quota has whole processors.

The kernels run on the same threads, which wait for one another six times a layer for each decoded token. libgomp's
default spins for long: best on an idle machine, but where a browser shares two cores the spinning thread holds the
core that the awaited one needs. Sleeping at once costs an eighth on an idle machine. A short spin keeps most of both.
Values set in the environment win.
"""

import os

from backend.cgroup import cores, usable

os.environ.setdefault("GOMP_SPINCOUNT", "2000")
if cores() < usable():
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))

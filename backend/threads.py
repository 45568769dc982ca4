"""How long an idle OpenMP thread spins before it sleeps, set before torch starts its threads.

Decoding one token is hundreds of small parallel regions. libgomp's default spins for long: best on an idle machine,
but where a browser shares two cores the spinning thread holds the core that the awaited one needs (measured with a
busy loop on one of two cores: 2 to 8 tokens/s instead of 40). Sleeping at once costs a third on an idle machine. A
short spin keeps most of both. A value set in the environment wins.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "2000")

"""The page: tabs, live charts, and what joins them to the backend."""

import os

# OpenBLAS reads this when numpy is first imported. The page's products are small, and a second thread would wait for
# the core on which the model computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

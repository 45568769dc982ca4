"""How an experiment's results in assets/ are made anew: an hour and more each on two cores.

    python -m backend.evaluation.recipes long_responses --data-folder FOLDER --print

Results hold the commands that made them, some with fewer prompts and documents. The data's folder has
scitldr_test.jsonl, hellobench_ht.jsonl, longbench_write_en.jsonl and novels/.
"""

from __future__ import annotations

import sys

from backend.evaluation.experiments import experiments
from backend.recipes import run

RECIPES = {each.name: [f"-m {line}" for line in each.recipe] for each in experiments if each.recipe}

if __name__ == "__main__":
    sys.exit(run(RECIPES))

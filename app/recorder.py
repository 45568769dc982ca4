"""Records the runs of lessons anew, each as its tab shows it: `python -m app.recorder`; with names, those alone."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import orjson

from app import page, recorded
from app.lessons import lessons
from app.lessons.lesson import Lesson
from app.recorded import Recording
from app.runs import Runs
from backend.engine import Lab
from backend.models.adapters import available
from backend.settings import RunSettings


def record(demo: page.Page, lesson: Lesson) -> Recording:
    """The run of a lesson, made now: what the button of its tab does with the boxes filled."""
    stage = demo.stages[lesson.run.tab]
    go = stage.place.buttons.go._id
    starts = next(fn for fn in demo.fns.values() if (go, "click") in fn.targets and fn.concurrency_id == "model")
    chosen = dict(zip((box._id for box in stage.boxes.values()), stage.values(lesson.run.settings), strict=True))
    values = [chosen[each._id] if each._id in chosen else getattr(each, "value", None) for each in starts.inputs]
    since = time.monotonic()
    written: Any = starts.fn
    *_, last = written(SimpleNamespace(session_hash="recorder"), *values)
    # The frame comes first where a run leaves more behind.
    frame = last[0] if isinstance(last, list) else last
    return Recording(round(time.monotonic() - since, 1), orjson.loads(frame))


def main() -> None:
    if unknown := sorted({*sys.argv[1:]} - lessons().keys()):
        raise SystemExit(f"{', '.join(unknown)}: no lesson has such a name. There are {', '.join(lessons())}.")
    lab = Lab()
    demo = page.build(lab, available, Runs())
    lab.runner(RunSettings(prompt="…"))
    for name in sys.argv[1:] or lessons():
        made = record(demo, lessons()[name])
        recorded.keep(name, made)
        print(f"{name}: {made.seconds} s, {recorded.file_of(name).stat().st_size / 1000:.0f} kB", flush=True)
    demo.close()


if __name__ == "__main__":
    main()

"""`python -m app` opens the lab on http://127.0.0.1:7860; `python -m app --help` lists the rest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

# Spaces runs this file by its path: first on the import path is then its folder, whose names hide some of Python's own.
if not __package__:
    sys.path[0] = str(Path(__file__).parents[1])
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
from backend.serving.on_zerogpu import on_zerogpu

if on_zerogpu():
    # It puts an emulated GPU into torch, which only the main thread sees: weights are to be loaded there.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    import spaces  # noqa: F401

from app import connections, ending, front, live, log, options, page, theme
from app.classroom import addresses
from app.classroom.room import Room
from app.limits import MB, Limits
from app.runs import Runs
from app.shares import Shares
from app.sites import Sites
from backend.engine import Lab
from backend.models.adapters import available
from backend.models.pool import ModelError, Models, allowed
from backend.refused import Refused
from backend.serving import zerogpu
from backend.serving.backend import EngineBackend
from backend.serving.deployment import Deployment
from backend.settings import RunSettings

# Runs at the same time, and what says that the cluster is this machine's own.
CONCURRENCY, LOCAL = 8, "local"
# Bound to it, the lab is reached by all addresses of this machine, as a class on its network needs.
ANY_ADDRESS = "0.0.0.0"


def make(names: Sequence[str], concurrency: int = 1) -> page.Page:
    """The page over a lab that may load the named models."""
    return page.build(Lab(Models(names)), available, Runs(), concurrency)


def serve(
    demo: page.Page,
    host: str | None = None,
    port: int | None = None,
    share: bool = False,
    quiet: bool = True,
    sites: Sites | None = None,
    limits: Limits | None = None,
) -> str:
    """Serves the page in the background and returns its address: 127.0.0.1 without `host`, or GRADIO_SERVER_NAME.

    sites: who may use it, by default its own page alone.
    """
    sites, limits = sites or Sites.of(host, share=share), limits or Limits()
    connections.on_asyncio()
    _, address, _ = demo.launch(
        server_name=host,
        server_port=port,
        share=share,
        prevent_thread_lock=True,
        quiet=quiet,
        theme=theme.make(),
        css_paths=[*live.STYLES],
        head=live.page_head(),
        app_kwargs={
            "routes": demo.routes,
            "middleware": demo.middleware,
            "lifespan": front.standing(sites, limits),
            "exception_handlers": dict.fromkeys(front.UNFIT, front.unfit),
        },
        max_threads=demo.threads,
        footer_links=["api"],
        favicon_path=live.STATIC / "favicon.svg",
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        max_file_size=int(limits.upload_mb * MB),
        show_error=True,
        mcp_server=False,
        # That the server answers was asked before this, without a limit: else it has three seconds for its first page,
        # which a busy machine has not, and is given up.
        _frontend=False,
    )
    connections.bound(demo.server, limits)
    return address


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m app", description=__doc__)
    parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", 7860)))
    parser.add_argument("--models", type=Path, metavar="FILE", help="JSON list of models that may be loaded")
    parser.add_argument(
        "--allow-model", action="append", default=[], metavar="ID", help="one more hub id or local folder"
    )
    parser.add_argument(
        "--concurrency", type=int, help=f"runs at the same time (default {CONCURRENCY}, and as many for each replica)"
    )
    parser.add_argument("--share", choices=["yes", "no"], default="no", help="a public address through gradio.live")
    parser.add_argument(
        "--forwarded",
        metavar="PROXY",
        default=os.environ.get("FORWARDED_ALLOW_IPS", ""),
        help="addresses of proxies, with commas between, whose word on a visitor's address is believed (default none)",
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="one more name by which the lab is opened"
    )
    parser.add_argument(
        "--allow-frame", action="append", default=[], metavar="ORIGIN", help="a site that may show the lab in a frame"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="let replicas on Ray Serve write the runs: in the cluster at this address, or in one of this machine",
    )
    parser.add_argument(
        "--class",
        dest="classroom",
        action="store_true",
        help="open a class: students of the local network join by a code, their runs are dots on the teacher's screen",
    )
    options.add_to(parser, "replicas, with --ray", Deployment)
    options.add_to(parser, "shares", Shares)
    options.add_to(parser, "limits", Limits)
    return parser


def main() -> None:
    ending.heed_signals()
    parser = _parser()
    given = parser.parse_args()
    # Where nobody is named to believe, the server believes whatever asks from this machine.
    os.environ["FORWARDED_ALLOW_IPS"] = given.forwarded
    limits, share = options.of(Limits, given), given.share == "yes"
    room = Room() if given.classroom else None
    runs, deployment = Runs(room.begins, room.ended) if room else Runs(), options.of(Deployment, given)
    host = given.host or os.environ.get("GRADIO_SERVER_NAME") or (ANY_ADDRESS if room else None)
    log.bound(int(limits.log_kb * 1000))
    try:
        lab = Lab(Models(_names(given)))
        backend = _backend(given.ray, lab, deployment)
    except (ModelError, Refused) as error:
        parser.error(str(error))
    concurrency = given.concurrency or CONCURRENCY * (deployment.most if given.ray else 1)
    demo = page.build(lab, available, runs, concurrency, options.of(Shares, given), backend, room)
    try:
        sites = Sites.of(host, given.allow_host, given.allow_frame, share)
        if share or given.forwarded or os.environ.get("SPACE_HOST"):
            limits = limits.behind_proxy()
        served = serve(demo, host, given.port, share, quiet=False, sites=sites, limits=limits)
        if room:
            demo.reached = addresses.reached(host, urlsplit(served).port or given.port)
            print(addresses.announced(room, demo.reached), flush=True)
        if backend is None:
            _warm(lab)
        ending.wait(demo)
    except OSError as error:
        parser.error(f"the lab cannot be served on port {given.port} ({error}): choose another with --port")
    except KeyboardInterrupt:
        print("The lab ends.")
    ending.end(demo, runs, limits.end_seconds)


def _names(given: argparse.Namespace) -> list[str]:
    """The models that may be asked for. A ZeroGPU Space loads them all: the embedded one, and what is added to it."""
    names = allowed(given.models, given.allow_model)
    return [*dict.fromkeys([names[0], *given.allow_model])] if on_zerogpu() else names


def _backend(ray: str | None, lab: Lab, deployment: Deployment) -> EngineBackend | None:
    """What writes the runs, where this process does not. Refused with a sentence."""
    if on_zerogpu():
        return zerogpu.ZeroGpuBackend(lab)
    if ray is None:
        return None
    from backend.serving import ray_serve

    print(f"The replicas begin: {deployment.replicas} of them, which takes half a minute or more.", flush=True)
    return ray_serve.begin(lab.models.names(), deployment, None if ray == LOCAL else ray)


def _warm(lab: Lab) -> None:
    """Loads and packs the first model; whatever is wrong with it, the page says when it asks."""
    with suppress(Exception):
        lab.runner(RunSettings(model=lab.models.names()[0], prompt="…"))


if __name__ == "__main__":
    main()
elif os.environ.get("SPACE_ID"):
    demo = make(allowed())

"""Listen, until told to stop."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable
from types import FrameType

import torch
import uvicorn

from natsr.serve.app import make_app
from natsr.serve.processes import hired
from natsr.serve.settings import ServeSettings, check_host
from natsr.types import OptionError

#: Seconds that requests in hand get after a signal to stop.
GRACE = 10


class Server(uvicorn.Server):
    """Ends streams of events when it is told to stop, for they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        self._stopping()
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be told: asyncio sends answers at once (TCP_NODELAY) only over sockets that name it. Otherwise
    # the second part of an answer waits for the client to have confirmed the first, which takes it 40 milliseconds.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), port))
        made.listen(2048)  # now, so that who is told the address can connect; the answer comes when all is ready
    except (OSError, OverflowError) as error:
        made.close()
        raise OptionError(f"cannot listen on {host} port {port}: {error}; choose another --port") from error
    return made


def serve(settings: ServeSettings, host: str, port: int, started: Callable[[str], None], log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: What is served.
        host: Address to listen on; only a loopback one without tokens.
        port: 0 takes any that is free.
        started: Called with the address once it listens.
        log_level: Of the messages on standard error.
    """
    check_host(host, settings.tokens)
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    sys.setswitchinterval(0.001)  # a thread that learns gives way to a request five times sooner than it would
    with listening(host, port) as made, hired(settings.workers, [made]) as workshops:
        app = make_app(settings, workshops)
        config = uvicorn.Config(
            app, log_config=None, access_log=log_level == "debug", timeout_graceful_shutdown=GRACE, server_header=False
        )
        name = f"[{host.strip('[]')}]" if ":" in host else host
        started(f"http://{name}:{made.getsockname()[1]}")
        Server(config, app.state.service.bus.close).run([made])

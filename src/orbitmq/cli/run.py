"""`orbitmq run module:app`: run an application as a program, with reload for development.

In: where the App is, and options. Out: one ready line when its listeners consume; logs on standard
error. With --reload a process beside runs the application and is started again when a source file
changes.

Rules:
1. The current folder is searched for the module first, as `python -m` does.
2. A signal stops cleanly: handlers finish, offsets are committed.
3. While a changed source has a mistake, the reloader says so and waits for the next change.
"""

import argparse
import asyncio
import importlib
import logging
import sys
from pathlib import Path

from orbitmq.app import App
from orbitmq.cli.process import log_to_stderr, run_command, say, serve
from orbitmq.errors import SettingError
from orbitmq.world.processes import Child, start_child
from orbitmq.world.sources import source_times

logger = logging.getLogger("orbitmq.run")

LOOK_S = 0.3

EXAMPLES = """\
examples:
  orbitmq run shop.worker:app                      the App called app in shop/worker.py
  orbitmq run worker --reload                      app in worker.py, again after every change
  ORBITMQ_NAMESRV=mq:9876 orbitmq run worker       settings from the environment
  orbitmq run worker --file production.toml        or from a file
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "run",
        help="run an application: functions that consume topics",
        description="Run an application made of functions that consume topics.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("app", metavar="MODULE[:NAME]", help="where the App is (NAME: app)")
    parser.add_argument("--file", metavar="FILE", help="settings in TOML (./orbitmq.toml)")
    parser.add_argument(
        "--reload", action="store_true", help="start again when a source file changes"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    return run_command("orbitmq run", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    log_to_stderr()
    if arguments.reload:
        serve(lambda _turn, _registry: Reloader(_child_command(arguments), Path.cwd()))
        return 0
    app = find_app(arguments.app)
    if arguments.file is not None:
        app.use_file(arguments.file)
    serve(lambda _turn, _registry: AppService(app), is_child=arguments.child)
    return 0


def _child_command(arguments: argparse.Namespace) -> list[str]:
    file = ["--file", arguments.file] if arguments.file is not None else []
    return ["orbitmq", "run", arguments.app, "--child", *file]


def find_app(where: str) -> App:
    """Import the App that `module:name` names; raises SettingError when there is none."""
    module_name, _, name = where.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise SettingError(
            f"there is no module {module_name} in {Path.cwd()} or among what is installed"
        ) from None
    app = getattr(module, name or "app", None)
    if not isinstance(app, App):
        raise SettingError(
            f"{module_name} has no App called {name or 'app'}; write app = App(...) there, or name "
            "another one: orbitmq run module:name"
        )
    return app


class AppService:
    """An application as a service of a process."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def start(self) -> str:
        """Begin to consume; return the ready line."""
        await self._app.start()
        names = ",".join(listener.name for listener in self._app.listeners())
        return f"ready listeners={names or '-'}"

    async def stop(self) -> None:
        """Finish and disconnect."""
        await self._app.close()


class Reloader:
    """Runs the application in a process beside, and again after every change of a source file."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._child: Child | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Start it the first time; return the line that says what is watched."""
        before = source_times(self._folder)
        await self._start_child()
        self._tasks.append(asyncio.create_task(self._watch(before)))
        return f"ready reload={self._folder}"

    async def stop(self) -> None:
        """Stop watching, and the application."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_child()

    async def _watch(self, before: dict[Path, int]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(source_times, self._folder)
            if now != before:
                before = now
                logger.info("a source file has changed; starting again")
                await self._stop_child()
                await self._start_child()

    async def _start_child(self) -> None:
        self._child = child = await start_child(self._command)
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(_show(child)))

    async def _stop_child(self) -> None:
        if self._child is not None:
            self._child.terminate()
            await self._child.wait()


async def _show(child: Child) -> None:
    """Show what the application prints, its ready line included, and say when it ends."""
    while (line := await child.line()) is not None:
        say(line)
    code = await child.wait()
    if code:
        logger.error("the application ended with exit code %d; waiting for a change", code)

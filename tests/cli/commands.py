"""The commands as processes of their own: started, listened to, stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

PATIENCE_S = 20.0


def environment(home: Path) -> dict[str, str]:
    """The environment of a user whose folder is `home` and who never heard of ROCKETMQ_HOME."""
    kept = {name: value for name, value in os.environ.items() if name != "ROCKETMQ_HOME"}
    return {**kept, "HOME": str(home), "PYTHONWARNINGS": "error"}


def run_command(module: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


class Running:
    """A command that serves."""

    def __init__(
        self, module: str, *arguments: str, folder: Path, open_files_max: int | None = None
    ) -> None:
        self.errors = folder / "stderr.txt"
        limited = ["sh", "-c", f'ulimit -n {open_files_max} && exec "$@"', "sh"]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [*(limited if open_files_max else []), sys.executable, "-m", module, *arguments],
                cwd=folder,
                env=environment(folder),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        """The next line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def await_log(self, text: str) -> None:
        """Return when standard error has `text`."""
        for _ in range(1_000):
            if text in self.errors.read_text():
                return
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            break
        assert text in self.errors.read_text()

    def await_listening(self) -> str:
        """Return the address in the log line `listening on ADDRESS`."""
        self.await_log("listening on ")
        line = next(line for line in self.errors.read_text().splitlines() if "listening on" in line)
        return line.partition("listening on ")[2].partition(",")[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def rest(self) -> str:
        """What standard output had besides the lines read; after the end."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

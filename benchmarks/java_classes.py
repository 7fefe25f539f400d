"""The Java program beside the Python client: its classes, and how it is started.

In: java/JavaClient.java and the original's jars, which Maven fetches once (tests/originals). Out: a
command line. Rule: it is compiled when its classes are missing or older than the source, and it
runs with the JVM's own choice of compiler and collector.
"""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.c_programs import BUILD_LIMIT_S, HERE, BuildFailed
from benchmarks.servers import ORIGINAL_READY_LIMIT_S, ORIGINAL_SCRIPT, ORIGINAL_VERSION

SOURCE = HERE / "java" / "JavaClient.java"
CLASSES = HERE / "build" / "java"
MAIN = SOURCE.stem
JVM = ("-Xms512m", "-Xmx512m", "-Drocketmq.client.logLevel=WARN")


def java_command(home: Path) -> list[str]:
    """Return the command that starts the program; its log files go to `home`."""
    home.mkdir(parents=True)
    quiet = home / "logback.xml"
    quiet.write_text('<configuration><root level="WARN"/></configuration>', encoding="utf-8")
    jars = _run([str(ORIGINAL_SCRIPT), "fetch", ORIGINAL_VERSION], ORIGINAL_READY_LIMIT_S).strip()
    path = f"{build_classes(Path(jars))}{os.pathsep}{jars}/*"
    settings = [f"-Duser.home={home}", f"-Dlogback.configurationFile={quiet}"]
    return [_tool("java"), *JVM, *settings, "-cp", path, MAIN]


def build_classes(jars: Path, classes: Path = CLASSES) -> Path:
    """Compile the program if that was not done since it was changed; give its classes."""
    made = classes / f"{MAIN}.class"
    if made.exists() and made.stat().st_mtime >= SOURCE.stat().st_mtime:
        return classes
    command = [_tool("javac"), "--release", "11", "-nowarn", "-cp", f"{jars}/*"]
    _run([*command, "-d", str(classes), str(SOURCE)], BUILD_LIMIT_S)
    return classes


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BuildFailed(f"{name} is not installed; Java's client needs it")
    return path


def _run(command: list[str], limit_s: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout

"""`orbitmq store check|dump|repair DIR`: look into a store folder, and put it in order.

In: a folder, ours or the original's, and which records or checks are wanted. Out: a list for people
or JSON on standard output; progress, damage met on the way and errors on standard error.

Rules:
1. check and dump take no lock and change nothing: they work beside a running broker.
2. Exit codes: 0 all is well (now), 1 there is damage (still), 2 the folder cannot be used.
3. The log is DIR/commitlog or what --log names, one folder or several; never what the file of -c
   says, as DIR may be a copy, and the broker's own log is not to be touched then.
"""

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from orbitmq.broker.starting import STORE_NAME
from orbitmq.broker.store_options import store_options
from orbitmq.cli.process import (
    EXIT_FAILED,
    EXIT_USAGE,
    complain,
    given_settings,
    say,
    show_help,
)
from orbitmq.cli.progress import ProgressLine
from orbitmq.config import BrokerSettings, load_settings
from orbitmq.errors import MQError, SettingError
from orbitmq.store.check import check
from orbitmq.store.dump import TIME_MS_MAX, Wanted, describe, dump
from orbitmq.store.findings import Finding
from orbitmq.store.layout import Folder
from orbitmq.store.log_walk import Damage
from orbitmq.store.opening import Outside
from orbitmq.store.options import StoreOptions
from orbitmq.store.repair import repair
from orbitmq.store.verdict import Level, Verdict
from orbitmq.world.clock import SystemClock
from orbitmq.world.files import SystemFiles
from orbitmq.world.machine import boot_id

EXAMPLES = """\
examples:
  orbitmq store check data/store                   verify everything; also while a broker runs
  orbitmq store check /var/rocketmq/store --json   the original's folder, for a script
  orbitmq store dump data/store --topic orders --limit 10
  orbitmq store dump data/store --topic orders --key 42 --body
  orbitmq store dump data/store --from 2026-11-15T18:00 --to 2026-11-15T19:00
  orbitmq store repair data/store --dry-run        what is wrong
  orbitmq store repair data/store                  rebuild queues and index; stop the broker first
  orbitmq store check data/store --log /disk2/log  the log is elsewhere (storePathCommitLog)
  orbitmq store check data/store --log /disk1/log,/disk2/log     the log is in several folders

DIR is the folder that contains commitlog, or a data folder that contains store.
If the log is elsewhere (storePathCommitLog), name its folder with --log; several are separated by
commas, and include those of readOnlyCommitLogStorePaths.
-c and -D are needed only if the broker changed messageDelayLevel or messageIndexEnable; file sizes
are read from the files.
Exit codes: 0 healthy (after repair: now), 1 damaged, 2 the folder cannot be used.
"""

Act = Callable[[argparse.Namespace, Path, StoreOptions], int]

FINDINGS_MAX = 1_000
_LOG_KEYS = (
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "rocketmq.broker.multiPathSplitter",
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "store",
        help="check, list and repair a store folder",
        description="Check, list and repair a store folder, ours or the original's.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=lambda _: show_help(parser))
    verbs = parser.add_subparsers(metavar="check|dump|repair")
    _add_check(verbs)
    _add_dump(verbs)
    _add_repair(verbs)


def _add_check(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser("check", help="verify every invariant; changes nothing, needs no lock")
    _add_shared(verb)
    verb.add_argument("--json", action="store_true", help="print one JSON object")
    verb.set_defaults(run=lambda arguments: _run("check", arguments, _check))


def _add_dump(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "dump", help="print records as JSON, one object per line; needs no lock"
    )
    _add_shared(verb)
    verb.add_argument("--topic", metavar="T", help="only records of this topic")
    verb.add_argument("--queue", type=int, metavar="Q", help="only records of this queue id")
    verb.add_argument("--key", metavar="K", help="only records with this key (needs --topic)")
    verb.add_argument(
        "--from-offset", type=int, default=0, metavar="N", help="from this log offset on"
    )
    verb.add_argument(
        "--from",
        dest="from_ms",
        type=_time_ms,
        default=0,
        metavar="TIME",
        help="stored at or after: ms since 1970, or 2026-11-15T18:00 (local unless it has a zone)",
    )
    verb.add_argument(
        "--to",
        dest="to_ms",
        type=_time_ms,
        default=TIME_MS_MAX,
        metavar="TIME",
        help="stored at or before",
    )
    verb.add_argument("--limit", type=int, metavar="N", help="print at most N records")
    verb.add_argument("--body", action="store_true", help="add the body as stored, in base64")
    verb.set_defaults(run=lambda arguments: _run("dump", arguments, _dump))


def _add_repair(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "repair", help="rebuild queues and index from the log; stop the broker first"
    )
    _add_shared(verb)
    verb.add_argument("--dry-run", action="store_true", help="only check, change nothing")
    verb.add_argument("--json", action="store_true", help="print one JSON object")
    verb.set_defaults(run=lambda arguments: _run("repair", arguments, _repair))


def _add_shared(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("folder", metavar="DIR", help="store folder")
    verb.add_argument(
        "--log",
        metavar="LOG",
        help="the log's folder, or several with commas, if it is not DIR/commitlog",
    )
    verb.add_argument(
        "--progress",
        action="store_true",
        help="show progress, also when the output is not a terminal",
    )
    verb.add_argument("-c", dest="file", metavar="FILE", help="the broker's .properties")
    verb.add_argument(
        "-D",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one of its keys; may be repeated",
    )


def _time_ms(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) > 8:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write ms since 1970, or a time such as 2026-11-15T18:00"
        ) from None


def _run(verb: str, arguments: argparse.Namespace, act: Act) -> int:
    try:
        properties, overrides, _ = given_settings(SystemFiles(), arguments, {})
        for key in _LOG_KEYS:  # rule 3
            properties.pop(key, None)
        if arguments.log:
            overrides["storePathCommitLog"] = arguments.log
        settings, _ = load_settings(BrokerSettings, properties, overrides, strict=False)
        return act(arguments, _folder(arguments), store_options(settings))
    except MQError as error:
        complain(f"orbitmq store {verb}", error)
        return EXIT_USAGE


def _folder(arguments: argparse.Namespace) -> Path:
    """Return the store folder: DIR, or the one inside it when DIR is a data folder."""
    folder = Path(arguments.folder)
    is_data_folder = not _is_store(folder) and _is_store(folder / STORE_NAME)
    return folder / STORE_NAME if is_data_folder else folder


def _is_store(path: Path) -> bool:
    files, folder = SystemFiles(), Folder(path)
    return any(map(files.is_folder, (folder.log_in_root, folder.queues)))


# --- check ---


def _check(arguments: argparse.Namespace, folder: Path, options: StoreOptions) -> int:
    with ProgressLine(SystemClock(), is_wanted=arguments.progress) as progress:
        verdict = check(SystemFiles(), folder, options, boot_id(), progress.tell)
    if arguments.json:
        say(msgspec.json.encode(_verdict_value(verdict)).decode())
    else:
        for line in _verdict_lines(verdict):
            say(line)
    return 0 if verdict.is_healthy else EXIT_FAILED


def _verdict_value(verdict: Verdict) -> dict[str, object]:
    return {
        "healthy": verdict.is_healthy,
        "totals": {level.value: verdict.totals[level] for level in Level},
        "counts": dict(verdict.counts),
        "faults": [fault._asdict() for fault in verdict.faults],
    }


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    for fault in sorted(verdict.faults, key=lambda fault: list(Level).index(fault.level)):
        where = fault.path if fault.position < 0 else f"{fault.path} at byte {fault.position}"
        yield f"{fault.level.value:8} {where}: {fault.text}"
        if fault.advice:
            yield f"{'':8} -> {fault.advice}"
    hidden = sum(verdict.totals.values()) - len(verdict.faults)
    if hidden:
        yield f"and {hidden} more"
    yield ", ".join(f"{count:,} {what}" for what, count in verdict.counts.items())
    yield "healthy" if verdict.is_healthy else f"damaged in {verdict.totals[Level.DAMAGE]:,} places"


# --- dump ---


def _dump(arguments: argparse.Namespace, folder: Path, options: StoreOptions) -> int:
    if arguments.key is not None and arguments.topic is None:
        raise SettingError("--key needs --topic: keys are filed under their topic")
    wanted = Wanted(
        topic=arguments.topic,
        queue_id=arguments.queue,
        from_offset=arguments.from_offset,
        key=arguments.key,
        from_ms=arguments.from_ms,
        to_ms=arguments.to_ms,
    )
    is_damaged = False
    count = 0
    with _quiet_pipe(), ProgressLine(SystemClock(), is_wanted=arguments.progress) as progress:
        for found in dump(SystemFiles(), folder, wanted, options):
            if isinstance(found, Damage):
                is_damaged = True
                text = f"log offsets {found.start} to {found.end} are damaged: {found.text}"
                complain("orbitmq store dump", MQError(text))
                continue
            if count == arguments.limit:
                break
            count += 1
            described = describe(found, is_body_wanted=arguments.body)
            say(msgspec.json.encode(described).decode())
            if arguments.progress:  # not by itself: records may go to the same terminal
                progress.tell("records", count, 0)
    return EXIT_FAILED if is_damaged else 0


@contextmanager
def _quiet_pipe() -> Iterator[None]:
    """End like any other tool when the reader of a pipe (`| head`) has seen enough."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


# --- repair ---


def _repair(arguments: argparse.Namespace, folder: Path, options: StoreOptions) -> int:
    if arguments.dry_run:
        return _check(arguments, folder, options)
    outside = Outside(SystemFiles(), SystemClock(), boot_id())
    with ProgressLine(SystemClock(), is_wanted=arguments.progress) as progress:
        findings, verdict = repair(outside, folder, options, progress.tell)
    if arguments.json:
        rows = [finding._asdict() for finding in findings]
        value = {"findings": rows, **_verdict_value(verdict)}
        say(msgspec.json.encode(value, enc_hook=str).decode())
    else:
        for line in (*_finding_lines(findings), *_verdict_lines(verdict)):
            say(line)
    return 0 if verdict.is_healthy else EXIT_FAILED


def _finding_lines(findings: list[Finding]) -> Iterator[str]:
    for finding in islice(findings, FINDINGS_MAX):
        at = f" at log offset {finding.log_offset}" if finding.log_offset >= 0 else ""
        yield f"{finding.kind.value:16} {finding.path}{at}: {finding.text}"
    if len(findings) > FINDINGS_MAX:
        yield f"and {len(findings) - FINDINGS_MAX} more"
    if not findings:
        yield "nothing to repair: queues and index are what the log says"

"""Make docs/reference/metrics.md from the metrics of a running name server and broker.

In: a registry filled by starting both on free ports in a scratch folder, and by a meter of Spark
queries. Out: the page, or with --check exit code 1 when it is out of date.

    python -m tools.metrics_page [--check]
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from orbitmq.broker.broker import Broker
from orbitmq.config import BrokerSettings, NamesrvSettings
from orbitmq.metrics import Registry
from orbitmq.namesrv.namesrv import NameServer
from orbitmq.net.turn import Turn
from orbitmq.spark.progress import ProgressMeter, show_metrics
from orbitmq.world.net import run
from tools.pages import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

Made by `tools/metrics_page.py` from a running name server and broker; do not edit. Those that begin
with `orbitmq_spark_` are of a Spark program
([progress and lag](../guides/spark.md#progress-and-lag)).
`--metrics-port M` shows them in Prometheus' text format on `http://HOST:M/metrics`. Counters only
grow; a label in braces tells apart what is counted under one name.

| metric | kind | what it counts |
|---|---|---|
"""


async def collect(folder: Path) -> str:
    """Start a name server and a broker, and give their metrics as text."""
    turn, registry = Turn(asyncio.get_running_loop()), Registry()
    namesrv = NameServer(NamesrvSettings(), folder / "namesrv", turn=turn, registry=registry)
    port = await namesrv.start("127.0.0.1", 0)
    settings = BrokerSettings(namesrv_addr=f"127.0.0.1:{port}", listen_port=0)
    broker = Broker(settings, folder / "store", turn, registry)
    show_metrics(ProgressMeter(), registry)
    try:
        await broker.start()
        return registry.render()
    finally:
        await broker.stop()
        await namesrv.stop()


def render_page(text: str) -> str:
    """Return the whole page for the text of all metrics."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
    rows = [f"| `{name}` | {kinds[name]} | {sentence} |" for name, sentence in sorted(helps)]
    return HEAD + "\n".join(rows) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    with tempfile.TemporaryDirectory() as folder:
        page = render_page(run(collect(Path(folder))))
    return write_or_check(PAGE, page, arguments, "metrics_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

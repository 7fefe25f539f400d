"""The format `rocketmq_log` in a real Spark: tables, SQL, schemas, streams, a live broker."""

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from orbitmq import Message, Producer
from orbitmq.spark.log_source import LogSource
from orbitmq.testing import EmbeddedBroker
from tests.arrow.made import plain
from tests.golden.store import CLEAN, CRASHED, stored_records, unpack_store
from tests.spark.logs import MadeLog

QUERY_S = 60


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    roots = {name: tmp_path_factory.mktemp(name) for name in (CLEAN, CRASHED)}
    for name, root in roots.items():
        unpack_store(name, root)
    return roots


@pytest.fixture(scope="module")
def log_spark(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(LogSource)
    return spark


def table(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq_log").options(**options).load(str(path))


@pytest.mark.parametrize("name", [CLEAN, CRASHED])
def test_a_recorded_store_is_a_table_with_all_its_records(
    log_spark: SparkSession, golden: dict[str, Path], name: str
) -> None:
    rows = table(log_spark, golden[name], splitSizeBytes="1000000", decompress="false").collect()
    found = sorted((row.physicalOffset, row.topic, dict(row.properties)) for row in rows)
    expected = [(each["offset"], each["topic"], each["properties"]) for each in stored_records()]
    assert found == expected


def test_columns_of_the_users_schema_come_in_its_order(
    log_spark: SparkSession, golden: dict[str, Path]
) -> None:
    chosen = log_spark.read.format("rocketmq_log").schema("queueId int, topic string")
    frame = chosen.load(str(golden[CLEAN]))
    assert frame.columns == ["queueId", "topic"]
    counts = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert sum(counts.values()) == len(stored_records())


def test_sql_reads_a_store(log_spark: SparkSession, golden: dict[str, Path]) -> None:
    log_spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW old_log USING rocketmq_log "
        f"OPTIONS (path '{golden[CLEAN]}', topic 'TopicFill', properties 'none')"
    )
    query = "SELECT count(*) AS n, count_if(tags = 'TagA') AS a FROM old_log"
    row = log_spark.sql(query).collect()[0]
    fill = [each for each in stored_records() if each["topic"] == "TopicFill"]
    tagged = [each for each in fill if each["properties"].get("TAGS") == "TagA"]
    assert (row.n, row.a) == (len(fill), len(tagged))


def test_an_empty_store_is_an_empty_table(log_spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert table(log_spark, tmp_path).collect() == []


def test_wrong_schemas_and_options_are_named_by_spark(
    log_spark: SparkSession, golden: dict[str, Path]
) -> None:
    reader = log_spark.read.format("rocketmq_log")
    with pytest.raises(PySparkException, match="there is no column 'bdy'"):
        reader.schema("bdy binary").load(str(golden[CLEAN])).collect()
    with pytest.raises(PySparkException, match="column 'queueId' is int32, not int64"):
        reader.schema("queueId bigint").load(str(golden[CLEAN])).collect()
    strict = log_spark.read.format("rocketmq_log").option("onCorruptRecord", "quarantine")
    with pytest.raises(PySparkException, match="needs the column 'damage'"):
        strict.schema("topic string").load(str(golden[CLEAN])).collect()
    with pytest.raises(PySparkException, match="did you mean 'useConsumeQueue'"):
        table(log_spark, golden[CLEAN], useConsumeQueues="true").collect()


def test_quarantined_damage_can_be_told_from_records_in_a_query(
    log_spark: SparkSession, tmp_path: Path
) -> None:
    made = MadeLog(tmp_path)
    made.append(*(plain(number) for number in range(9)))
    made.write(made.starts[4] + 4, b"\0")
    frame = table(log_spark, tmp_path, onCorruptRecord="quarantine", includeRaw="true")
    bad = frame.where(F.col("damage").isNotNull()).collect()
    assert [row.physicalOffset for row in bad] == [made.starts[4]]
    assert len(bad[0].raw) == bad[0].size
    assert frame.where("damage is null").count() == 8
    with pytest.raises(PySparkException, match="'onCorruptRecord' to skip or quarantine"):
        table(log_spark, tmp_path).count()


def run_available(spark: SparkSession, root: Path, sink: Path, **options: str) -> None:
    stream = spark.readStream.format("rocketmq_log").options(path=str(root), **options).load()
    query = (
        stream.select("physicalOffset", "keys")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(sink / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(sink / "rows"))
    )
    assert query.awaitTermination(QUERY_S)
    assert query.exception() is None


def test_a_stream_goes_on_where_its_checkpoint_ends(
    log_spark: SparkSession, tmp_path: Path
) -> None:
    made = MadeLog(tmp_path / "store")
    made.append(*(plain(number) for number in range(40)))
    sink = tmp_path / "sink"
    run_available(log_spark, made.root, sink, maxBytesPerTrigger="2000")
    made.append(*(plain(number) for number in range(40, 60)))
    run_available(log_spark, made.root, sink, maxBytesPerTrigger="2000")
    rows = log_spark.read.parquet(str(sink / "rows")).orderBy("physicalOffset").collect()
    assert [row.physicalOffset for row in rows] == made.starts
    assert [row["keys"] for row in rows] == [f"k{number}" for number in range(60)]
    assert len(list((sink / "checkpoint" / "commits").glob("[0-9]*"))) > 3


def test_the_log_of_a_broker_that_writes_on_is_read_beside_it(
    log_spark: SparkSession, tmp_path: Path
) -> None:
    with (
        EmbeddedBroker(folder=tmp_path / "data") as broker,
        Producer(namesrv=broker.namesrv, group="logs") as producer,
    ):
        root = tmp_path / "data" / "store"
        for number in range(20):
            producer.send(Message("LiveLog", b"%d" % number, keys=[f"k{number}"]))
        live = table(log_spark, root, topic="LiveLog")
        assert sorted(row["keys"] for row in live.collect()) == sorted(f"k{n}" for n in range(20))
        sink = tmp_path / "sink"
        run_available(log_spark, root, sink, topic="LiveLog")
        for number in range(20, 30):
            producer.send(Message("LiveLog", b"%d" % number, keys=[f"k{number}"]))
        run_available(log_spark, root, sink, topic="LiveLog")
    rows = log_spark.read.parquet(str(sink / "rows")).collect()
    assert sorted(row["keys"] for row in rows) == sorted(f"k{number}" for number in range(30))


def test_the_module_that_spark_looks_for_is_there_and_never_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = importlib.import_module("pyspark_orbitmq_log")
    assert found.DefaultSource is LogSource
    monkeypatch.delitem(sys.modules, "pyspark_orbitmq_log")
    monkeypatch.setitem(sys.modules, "orbitmq.spark.log_source", None)
    without = importlib.import_module("pyspark_orbitmq_log")
    assert not hasattr(without, "DefaultSource")

"""Secured clusters in Spark: TLS, signed requests, and no secret in anything that is shown."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from orbitmq.spark.cluster import QueueFailed, Retries, cluster_of
from orbitmq.spark.connection_options import client_settings
from orbitmq.spark.topic_options import topic_options
from orbitmq.testing import EmbeddedBroker
from orbitmq.wire.bodies_client import MessageQueue
from tests.foreign.peers import guarded_original_broker, require_tool
from tests.net.certificates import Authority

UNTIL_S = 60
PASSWORD = "pass-of-the-key"
ACCESS, SECRET, TOKEN = "who-i-am-1", "hush-hush-12", "token-of-mine"
SECRETS = (PASSWORD, ACCESS, SECRET, TOKEN)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def sealed(authority: Authority) -> Iterator[EmbeddedBroker]:
    """A cluster that takes nothing but TLS, of clients that it knows."""
    papers = authority.issue("server")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": papers.cert_path,
        "tls.server.keyPath": papers.key_path,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": authority.path,
        "tls.client.certPath": papers.cert_path,
        "tls.client.keyPath": papers.key_path,
        "tls.client.trustCertPath": authority.path,
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def given(authority: Authority, sealed: EmbeddedBroker) -> dict[str, str]:
    """The options that reach it, with every secret there is."""
    papers = authority.issue("client", password=PASSWORD)
    return {
        "namesrvAddr": sealed.namesrv,
        "tls.enable": "true",
        "tls.trustCertPath": authority.path,
        "tls.certPath": papers.cert_path,
        "tls.keyPath": papers.key_path,
        "tls.keyPassword": PASSWORD,
        "accessKey": ACCESS,
        "secretKey": SECRET,
        "securityToken": TOKEN,
    }


def write(spark: SparkSession, topic: str, count: int, given: Mapping[str, str]) -> None:
    rows = spark.range(count).selectExpr("concat('body ', id) as body")
    writer = rows.coalesce(1).write.format("rocketmq").options(**given).option("topic", topic)
    writer.mode("append").save()


def read(spark: SparkSession, topic: str, given: Mapping[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(**given).option("topic", topic).load()


def stream(spark: SparkSession, topic: str, given: Mapping[str, str], checkpoint: Path) -> str:
    """Read a topic as a stream; return how many rows came, and what Spark shows of the query."""
    source = spark.readStream.format("rocketmq").options(**given).option("topic", topic)
    writer = source.option("startingOffsets", "earliest").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(UNTIL_S)
    progress = [dict(each) for each in query.recentProgress]
    assert sum(each["numInputRows"] for each in progress) == 20
    return json.dumps(progress, default=str)


def test_a_cluster_that_speaks_tls_only_is_written_and_read(
    spark: SparkSession, given: dict[str, str], tmp_path: Path
) -> None:
    write(spark, "sealed", 20, given)
    assert read(spark, "sealed", given).count() == 20
    stream(spark, "sealed", given, tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tls.enable": "false"}, "needs 'tls.enable' as true"),
        ({"tls.trustCertPath": ""}, "by TLS"),
        ({"tls.keyPassword": "wrong-one"}, "(?i)password|key"),
    ],
)
def test_a_wrong_tls_option_is_told_without_secrets(
    spark: SparkSession, given: dict[str, str], change: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message) as caught:
        read(spark, "sealed", {**given, **change}).count()
    assert not [secret for secret in (*SECRETS, "wrong-one") if secret in str(caught.value)]


def test_a_certificate_that_nobody_trusts_is_taken_if_it_need_not_be_checked(
    spark: SparkSession, given: dict[str, str]
) -> None:
    write(spark, "unchecked", 5, given)
    careless = {**given, "tls.trustCertPath": "", "tls.checksServer": "false"}
    assert read(spark, "unchecked", careless).count() == 5


class JavaLog:
    """What Java logs from INFO on, kept in memory: its standard error is that of the first test."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        log4j = jvm.org.apache.logging.log4j
        self._writer = jvm.java.io.StringWriter()
        layout = log4j.core.layout.PatternLayout.createDefaultLayout()
        appender = log4j.core.appender.WriterAppender
        self._appender = appender.createAppender(layout, None, self._writer, "kept", True, False)
        self._context = log4j.LogManager.getContext(False)

    @property
    def _root(self) -> Any:
        return self._context.getConfiguration().getRootLogger()

    @property
    def text(self) -> str:
        return str(self._writer.toString())

    def __enter__(self) -> "JavaLog":
        self._appender.start()
        self._root.addAppender(self._appender, None, None)
        self._spark.sparkContext.setLogLevel("INFO")
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.sparkContext.setLogLevel("WARN")
        self._root.removeAppender("kept")


def leaks(text: str) -> list[str]:
    """Return where a text shows a secret."""
    return [text[max(0, text.find(one) - 200) :][:400] for one in SECRETS if one in text]


def test_no_secret_is_in_plans_errors_progress_or_logs(
    spark: SparkSession,
    given: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with JavaLog(spark) as log:
        write(spark, "hidden", 20, given)
        frame = read(spark, "hidden", given)
        frame.explain(extended=True)
        frame.explain("formatted")
        assert frame.count() == 20
        shown = stream(spark, "hidden", given, tmp_path / "checkpoint")
        options = ", ".join(f"`{name}` '{value}'" for name, value in given.items())
        view = f"CREATE OR REPLACE TEMPORARY VIEW hidden USING rocketmq OPTIONS ({options})"
        shown += str(spark.sql(f"EXPLAIN EXTENDED {view}").collect())
        with pytest.raises(PySparkException, match="nothing-here does not exist") as missing:
            read(spark, "nothing-here", given).count()
        with pytest.raises(PySparkException, match="did you mean 'secretKey'") as misspelt:
            read(spark, "hidden", {**given, "secretKeys": SECRET}).count()
    plans = capsys.readouterr().out
    assert "Physical Plan" in plans
    assert "Job" in log.text
    shown += f"{plans} {missing.value} {misspelt.value}"
    assert leaks(shown) == []
    assert leaks(log.text) == []


def test_no_secret_is_in_what_sources_log(
    given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = topic_options({**given, "topic": "hidden", "longPollMs": "50"}, is_stream=True)
    cluster = cluster_of(options)
    with pytest.raises(QueueFailed) as told:
        cluster.max_offsets([MessageQueue("hidden", "no-such-broker", 0)], Retries(1, 0.01))
    shown = f"{told.value} {options!r} {client_settings(options)!r} {caplog.text}"
    assert "no-such-broker" in shown
    assert leaks(shown) == []


ACL = f"""\
accounts:
- accessKey: {ACCESS}
  secretKey: {SECRET}
  admin: true
- accessKey: only-reads-1
  secretKey: {SECRET}
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of an original whose broker wants every request signed."""
    require_tool("mvn")
    conf = tmp_path_factory.mktemp("conf")
    (conf / "plain_acl.yml").write_text(ACL)
    with guarded_original_broker("4.9.7", conf) as original:
        yield original.namesrv


@pytest.mark.foreign
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_original_with_access_control_takes_what_spark_signs_and_nothing_else(
    spark: SparkSession, guarded: str, tmp_path: Path
) -> None:
    signed = {"namesrvAddr": guarded, "accessKey": ACCESS, "secretKey": SECRET}
    write(spark, "guarded", 20, {**signed, "delivery": "idempotent", "writeId": "once"})
    assert read(spark, "guarded", {**signed, "consumerGroup": "g", "keys": "none"}).count() == 0
    assert read(spark, "guarded", signed).count() == 20
    stream(spark, "guarded", {**signed, "consumerGroup": "g"}, tmp_path / "checkpoint")
    reader = {**signed, "accessKey": "only-reads-1"}
    assert read(spark, "guarded", reader).count() == 20
    for wrong in (
        {"namesrvAddr": guarded},
        {**signed, "secretKey": "another-secret"},
        {**signed, "accessKey": "nobody-we-know"},
    ):
        with pytest.raises(PySparkException, match="of topic guarded at broker broker-a") as told:
            read(spark, "guarded", {**wrong, "fetchOffset.numRetries": "0"}).count()
        assert "another-secret" not in str(told.value)
    with pytest.raises(PySparkException, match=r"(?i)signature") as told:
        write(spark, "guarded", 3, {**signed, "secretKey": "another-secret", "retries": "0"})
    assert "another-secret" not in str(told.value)
    assert read(spark, "guarded", signed).count() == 20

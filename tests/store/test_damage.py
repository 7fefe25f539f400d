"""T5: whatever happens to a folder at rest, what is whole stays readable and nothing is invented.

Method: a folder of 100 messages in five log files (20 kB), made by the real store, is damaged in
one place; `damage_judge` says what must hold. Short form: some damages of each kind, the same every
time. `make nightly-torture` runs the long form: every bit of every file of log, queues and index
and of the checkpoint's first sector, every sector, every file; folders after a clean stop and
after a kill.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import pytest

from orbitmq.store.check import check
from tests.store.damage import (
    OPTIONS,
    ROOT,
    Damage,
    Flip,
    Healthy,
    all_flips,
    assert_as_sent,
    file_damages,
    flip,
    made,
    put_damage,
    sector_damages,
    some_flips,
    table_damages,
)
from tests.store.damage_judge import Judgement, judge, judge_flips
from tests.store.opened import BOOT, open_store
from tests.store.slow_store import assert_derived

IS_LONG = os.environ.get("ORBITMQ_TORTURE") == "long"
SEED = 5
FLIP_COUNT = 24
CHUNK_FLIPS = 500

pytestmark = [
    pytest.mark.nightly("torture", short=True),
    pytest.mark.timeout(0 if IS_LONG else 240),
]
BOTH = pytest.mark.parametrize("healthy", made(), ids=["clean", "killed"])


def some(damages: Iterable[Damage], count: int) -> list[Damage]:
    """All damages, or in the short form some of them."""
    chosen = list(damages)
    return chosen if IS_LONG else Random(SEED).sample(chosen, min(count, len(chosen)))


def assert_kept(title: str, judgements: Iterable[Judgement]) -> Counter[str]:
    """Assert that no promise was broken; print what was done."""
    counts: Counter[str] = Counter()
    violations: list[str] = []
    for judgement in judgements:
        counts += judgement.counts
        violations += judgement.violations
    form = "long" if IS_LONG else "short"
    print(f"T5 {title}: {form} form, seed {SEED}, {dict(counts)}, violations {len(violations)}")
    assert violations[:20] == []
    return counts


def judged(healthy: Healthy, damages: Iterable[Damage]) -> Iterator[Judgement]:
    return (judge(healthy, damage) for damage in damages)


def judged_by_all_cores(healthy: Healthy, flips: list[Flip]) -> Iterator[Judgement]:
    chunks = [flips[at : at + CHUNK_FLIPS] for at in range(0, len(flips), CHUNK_FLIPS)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(judge_flips, [healthy.is_clean] * len(chunks), chunks)


@BOTH
def test_the_folder_is_healthy_before_it_is_damaged(healthy: Healthy) -> None:
    assert check(healthy.copy(), ROOT, OPTIONS, BOOT).is_healthy
    unhurt = judge(healthy, Damage("nothing", "", {}, field="store_ms"))
    assert unhurt.violations == []
    assert unhurt.counts["records lost"] == 0
    if healthy.is_clean:
        assert_as_sent(healthy)
        assert_derived(healthy.blobs, OPTIONS.index_slot_count)


def test_a_judge_that_sees_another_body_or_a_lost_record_says_so() -> None:
    """The programme can fail: a damage that claims to cost nothing is blamed for what it costs."""
    clean, _ = made()
    at = sorted(clean.records)[4]
    path, position = f"commitlog/{0:020d}", at + 90
    honest = flip(clean, path, position, 0)
    assert honest.field == "body"
    assert judge(clean, honest).violations == []
    (loss, *_) = judge(clean, honest._replace(cost=frozenset())).violations
    assert f"lost without need: log offsets [{at}]" in loss
    unseen = judge(clean, Damage("nothing", path, {}))
    assert [text.partition(": ")[2] for text in unseen.violations] == ["check finds nothing"]


@BOTH
def test_one_flipped_bit_costs_at_most_its_record(healthy: Healthy) -> None:
    if IS_LONG:
        folders = ("commitlog/", "consumequeue/", "index/")
        flips = [one for folder in folders for one in all_flips(healthy, folder)]
        flips += [one for one in all_flips(healthy, "checkpoint") if one[1] < 512]
        judgements = judged_by_all_cores(healthy, flips)
    else:
        flips = some_flips(healthy, SEED, FLIP_COUNT if healthy.is_clean else FLIP_COUNT // 2)
        judgements = judged(healthy, (flip(healthy, *one) for one in flips))
    counts = assert_kept("flipped bits", judgements)
    assert counts["damages"] == len(flips)
    assert counts["named by check"] > 0.4 * len(flips)


@BOTH
def test_a_damaged_sector_costs_at_most_the_records_in_it(healthy: Healthy) -> None:
    damages = some(sector_damages(healthy), 24 if healthy.is_clean else 16)
    counts = assert_kept("sectors", judged(healthy, damages))
    assert counts["records lost"] > 0


@BOTH
def test_cut_lengthened_missing_and_foreign_files_cost_at_most_what_was_in_them(
    healthy: Healthy,
) -> None:
    damages = some(file_damages(healthy), 30 if healthy.is_clean else 16)
    counts = assert_kept("files", judged(healthy, damages))
    assert counts["records missing until repair"] == 0
    assert counts["with findings"] > 0.7 * len(damages)


def test_a_damaged_table_is_named_and_costs_no_message() -> None:
    clean, _ = made()
    damages = list(table_damages(clean))
    counts = assert_kept("tables", judged(clean, damages))
    assert counts["named by check"] == len(damages)
    assert counts["records lost"] == counts["with findings"] == 0


def test_two_damages_of_queues_and_log_at_once_cost_what_each_costs() -> None:
    """Queues are made anew from a log that is damaged itself: numbers stay what they were."""
    clean, _ = made()
    chance = Random(SEED)
    sectors = [damage for damage in sector_damages(clean) if damage.path.startswith("commitlog/")]
    gone = [
        damage for damage in file_damages(clean) if damage.path.startswith("consumequeue/TopicA")
    ]
    judgements = []
    for _ in range(600 if IS_LONG else 8):
        first, second = chance.choice(sectors), chance.choice(gone)
        both = first._replace(
            name=f"{first.name}, {second.name}", changes={**first.changes, **second.changes}
        )
        judgements.append(judge(clean, both))
    assert_kept("two damages", judgements)


def test_what_is_set_aside_is_what_was_there() -> None:
    """Nothing is deleted that cannot be made anew: its bytes are found below `aside`."""
    clean, _ = made()
    foreign = [
        damage
        for damage in file_damages(clean)
        if damage.path not in clean.blobs and damage.changes.get(damage.path)
    ]
    assert len(foreign) > 50
    for damage in foreign:
        files = put_damage(clean, damage)
        open_store(ROOT, files, OPTIONS).close()
        kept = [data for path, data in files.contents().items() if "aside" in path.parts]
        is_derived = damage.path.startswith("index/") and damage.path[6:].isdigit()
        assert damage.changes[damage.path] in kept or is_derived, damage.name

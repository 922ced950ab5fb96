from __future__ import annotations

import random
import subprocess
import sys

import pytest
from tests.conftest import write_jsonl

from medteb_mteb.curation.files.records import Dropped, Text
from medteb_mteb.curation.files.step import TextsSettings, run_step
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates, bands, jaccard, shingles

PHRASES = (
    "糖尿病 高血压 患者 应该 怎么 治疗 饮食 注意 医生 您好 请问 孩子 发烧 咳嗽 一直 不好 吃药 没有 效果 需要 "
    "检查 血压 控制 多久 可以 手术 之后 恢复 感冒 病毒 休息 多喝水 胃炎 疼痛 严重 会不会 传染 骨折 拍片 过敏"
)
WORDS = PHRASES.split()


def texts(number, seed=0):
    """Sentences, about a third of them earlier ones with a few characters changed."""
    rng = random.Random(seed)
    drawn = []
    for i in range(number):
        if drawn and rng.random() < 0.4:
            characters = list(rng.choice(drawn).text)
            for _ in range(rng.randrange(4)):
                characters[rng.randrange(len(characters))] = rng.choice("的了吗呢，啊")
            text = "".join(characters)
        else:
            text = "".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 25)))
        drawn.append(Text(f"d{i}", text))
    return drawn


def brute_force(given, threshold, width=3):
    """For each text nothing, or id and similarity of the most similar one kept before it."""
    kept, outcome = [], []
    for text in given:
        own = shingles(text.full, width)
        near = [(jaccard(own, grams), -number) for number, (_, grams) in enumerate(kept)]
        best, number = max(near, default=(0.0, 0))
        if best >= threshold:
            outcome.append((kept[-number][0], best))
        else:
            outcome.append(None)
            kept.append((text.id, own))
    return outcome


@pytest.mark.thorough(but=["0.5"])
@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_dropped_texts_equal_those_of_a_comparison_of_all_pairs(threshold):
    given = texts(1200)
    expected = brute_force(given, threshold)
    outcomes = list(NearDuplicates(threshold)(given))
    share = sum(map(bool, expected)) / len(given)
    assert 0.05 < share < 0.6
    errors = 0
    for text, outcome, before in zip(given, outcomes, expected, strict=True):
        if isinstance(outcome, Dropped):
            assert (outcome.text, outcome.reason) == (text, "near-duplicate")
            name, similarity = outcome.detail.split()
            other = next(t for t in given if t.id == name)
            true = jaccard(shingles(text.full), shingles(other.full))
            assert true >= threshold  # never dropped for a guess
            assert similarity == f"{true:.4f}"
            errors += before is None or before[0] != name
        else:
            assert outcome == text
            errors += before is not None
    assert errors <= 0.005 * len(given)


def test_shards_do_not_matter_and_the_first_is_kept():
    given = texts(700, seed=3)
    whole, parts = NearDuplicates(), NearDuplicates()
    expected = list(whole(given))
    assert [x for start in range(0, 700, 90) for x in parts(given[start : start + 90])] == expected
    first, second, third = (Text(name, "糖尿病患者可以吃西瓜吗") for name in "abc")
    outcome = list(NearDuplicates()([first, second, third]))
    assert [getattr(x, "detail", "kept") for x in outcome] == ["kept", "a 1.0000", "a 1.0000"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("感冒吃什么药？", "  感冒 吃什么药!", True),
        ("ＣＴ检查多少钱", "ct检查多少钱", True),
        ("好", "好。", True),
        ("好", "行", False),
        ("？？", "！！", False),
        ("？？", "？？", True),
        ("糖尿病吃什么好", "高血压吃什么好", False),
    ],
)
def test_punctuation_width_and_case_make_no_difference(one, other, same):
    outcomes = list(NearDuplicates()([Text("a", one), Text("b", other)]))
    assert isinstance(outcomes[1], Dropped) == same


def test_the_title_is_part_of_a_text():
    body = "多休息，多喝水。"
    outcomes = list(
        NearDuplicates()([Text("a", body, "感冒怎么办"), Text("b", body, "发烧了需要吃什么药好")])
    )
    assert outcomes[1].id == "b"


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_are_as_few_as_the_recall_allows(threshold):
    def recall(number):
        return 1 - (1 - threshold ** (256 // number)) ** number

    chosen = bands(threshold)
    assert recall(chosen) >= 0.995
    assert chosen == 1 or recall(chosen // 2) < 0.995


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "raw.jsonl", [text.to_json() for text in texts(200, seed=5)])


CHILD = """
import os, sys
from medteb_mteb.curation.texts.near_duplicates import NearDuplicates
from medteb_mteb.curation.files.step import TextsSettings, run_step
class Killed(NearDuplicates):
    calls = 0
    def __call__(self, texts):
        Killed.calls += 1
        if Killed.calls == 4:
            os._exit(9)
        return super().__call__(texts)
run_step(Killed(), TextsSettings(source=sys.argv[1], out=sys.argv[2]), shard=30)
"""


def test_resumed_equals_uninterrupted(source, tmp_path, content):
    run_step(NearDuplicates(), TextsSettings(source=source, out=tmp_path / "whole"), shard=30)
    child = subprocess.run([sys.executable, "-c", CHILD, str(source), str(tmp_path / "out")], check=False)
    assert child.returncode == 9
    run_step(NearDuplicates(), TextsSettings(source=source, out=tmp_path / "out"), shard=30)
    assert content(tmp_path / "out") == content(tmp_path / "whole")

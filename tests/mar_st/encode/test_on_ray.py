"""Tests of encoding on a Ray cluster: it writes the same files, even if a machine is lost."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from mar_st.encode.encoding import encode_corpus
from mar_st.encode.settings import EncodeSettings
from mar_st.errors import MarError
from tests.conftest import write_jsonl
from tests.mar_st.encode.corpora import files, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        ray_cluster.add_node(num_cpus=1)
        ray.init(address=ray_cluster.address, log_to_driver=False)
        yield ray_cluster
    finally:
        ray.shutdown()
        ray_cluster.shutdown()


def test_a_lost_machine_changes_nothing(model: Path, tmp_path: Path, cluster: Any) -> None:
    import ray

    corpus = write_jsonl(tmp_path / "corpus.jsonl", rows(1600))
    whole = encode_corpus(model, corpus, tmp_path / "whole", shard=8, threads=1, show_progress=False)
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    shards = tmp_path / "v" / "shards"
    lost: list[int] = []

    def kill() -> None:
        while len(list(shards.glob("0*.arrow"))) < 60:
            time.sleep(0.02)
        worker = next(node for node in cluster.list_all_nodes() if not node.head)
        cluster.remove_node(worker, allow_graceful=False)
        lost.append(len(list(shards.glob("0*.arrow"))))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    folder = encode_corpus(
        model, corpus, tmp_path / "v", shard=8, threads=1, engine="ray", show_progress=False
    )
    killer.join(timeout=1)

    assert lost
    assert 60 <= lost[0] < 200
    assert len([node for node in ray.nodes() if node["Alive"]]) == 1
    assert files(folder.path) == files(whole.path)


def test_errors_of_a_machine_are_reported(model: Path, tmp_path: Path, cluster: Any) -> None:
    corpus = write_jsonl(tmp_path / "corpus.jsonl", rows(20))
    with pytest.raises(MarError, match="32 dimensions; 33"):
        encode_corpus(
            model, corpus, tmp_path / "v", EncodeSettings(dim=33), shard=8, engine="ray", show_progress=False
        )

"""The digest of modules: each part of their description changes it, nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from mar_st.model.fingerprint import Weight, fingerprint


def weight(name="a", dtype="torch.float32", shape=(2,), content=(1, 2, 3, 4, 5, 6, 7, 8)):
    return Weight(name, dtype, shape, np.array(content, dtype=np.uint8))


def digest(*weights, **settings):
    return fingerprint([(settings or {"type": "Dense", "size": 2}, iter(weights or (weight(),)))])


def test_equal_modules_have_equal_digests_whatever_the_order_of_their_settings():
    assert digest() == digest(weight()) == digest(weight(), size=2, type="Dense")
    assert len(digest()) == 64


@pytest.mark.parametrize(
    "other",
    [
        digest(weight(name="b")),
        digest(weight(dtype="torch.int32")),
        digest(weight(shape=(1, 2))),
        digest(weight(content=(1, 2, 3, 4, 5, 6, 7, 9))),
        digest(weight(), weight(name="b")),
        digest(weight(), type="Dense", size=3),
        fingerprint([({"type": "Dense", "size": 2}, iter([weight()]))] * 2),
        fingerprint([]),
    ],
)
def test_every_part_of_a_module_changes_the_digest(other):
    assert other != digest()


def test_the_order_of_modules_counts():
    one, two = ({"type": "Pooling"}, [weight()]), ({"type": "Dense"}, [weight(name="b")])
    pairs = [[(settings, iter(weights)) for settings, weights in order] for order in ((one, two), (two, one))]
    assert fingerprint(pairs[0]) != fingerprint(pairs[1])

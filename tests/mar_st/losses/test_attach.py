from __future__ import annotations

import torch

from mar_st.losses.attach import attach


def test_attached_gradients_go_to_their_own_tensors_times_the_outer_gradient():
    first, frozen = torch.zeros(2, 3, requires_grad=True), torch.zeros(4)
    last = torch.zeros((), requires_grad=True)
    known = {0: torch.arange(6.0).reshape(2, 3), 2: torch.tensor(-5.0)}
    value = attach(torch.tensor(7.0), known, [first, frozen, last])
    assert value.item() == 7.0
    (-2 * value).backward()
    assert first.grad.tolist() == [[0.0, -2.0, -4.0], [-6.0, -8.0, -10.0]]
    assert last.grad.item() == 10.0
    assert frozen.grad is None


def test_a_second_attachment_leaves_the_first_in_place():
    """As the loss does it: first the vectors, then the learnt temperature."""
    vectors, scale = torch.ones(3, requires_grad=True), torch.ones((), requires_grad=True)
    first = attach(torch.tensor(1.0), {0: torch.tensor([1.0, 2.0, 3.0])}, [vectors])
    (4 * attach(first, {0: torch.tensor(0.5)}, [scale])).backward()
    assert vectors.grad.tolist() == [4.0, 8.0, 12.0]
    assert scale.grad.item() == 2.0


def test_a_value_to_which_nothing_is_attached_needs_no_gradient():
    value = attach(torch.tensor(3.0), {}, [torch.ones(2, requires_grad=True)])
    assert value.item() == 3.0
    assert not value.requires_grad

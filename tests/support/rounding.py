"""One rule for comparing floating-point results: rounding is relative to the largest entry of an array.

An entry is a sum, and its terms are as large as the largest entries around it. Another CPU or library adds them in
another order and moves every entry by a rounding of those terms, the small entries too. A bound on each entry relative
to itself, or one fixed number for arrays of any size, therefore fails on some machine.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

ROUNDINGS = 1000
"""How many times further than the loop moves a result may lie from it (see `assert_equals_loop`): the tests' small
networks add about as many terms (16 regions of 66 numbers), and each may be rounded another way."""


def assert_near(found, want, tolerance=None, *, scale=0.0, name=""):
    """Assert that no entry is further from the wanted one than ``tolerance`` times the largest wanted entry.

    Args:
        found: an array, tensor, number or list of numbers; or a dictionary of them.
        want: the same of equal shapes; in a dictionary, each array has its own largest entry.
        tolerance: relative to the largest absolute entry of ``want``; 1e-5 by default, 1e-10 for float64.
        scale: size of the terms where they cancel, so that the largest entry says too little: 1 for a difference of
            cosines or probabilities. The larger of the two counts.
        name: begins the message.
    """
    if isinstance(want, Mapping):
        assert found.keys() == want.keys(), name
        for key in want:
            assert_near(found[key], want[key], tolerance, scale=scale, name=f"{name} {key}".strip())
        return
    if isinstance(want, tuple) and isinstance(want[0], Tensor | Mapping):
        for number, (one, other) in enumerate(zip(found, want, strict=True)):
            assert_near(one, other, tolerance, scale=scale, name=f"{name} {number}".strip())
        return
    if tolerance is None:
        tolerance = 1e-10 if str(getattr(want, "dtype", "float64")).endswith("float64") else 1e-5
    ours, theirs = as_doubles(found), as_doubles(want)
    assert ours.shape == theirs.shape, f"{name}: shape {ours.shape}, expected {theirs.shape}"
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite], err_msg=name)
    size = max(scale, float(np.abs(theirs[finite]).max(initial=0)))
    deviation = np.abs(ours[finite] - theirs[finite]).max(initial=0)
    assert deviation <= tolerance * size, (
        f"{name}: deviates by {deviation:.2e}, allowed are {tolerance:.1e} of {size:.2e}"
    )


def assert_equals_loop(network, fast, loop):
    """Assert that a fast implementation equals a slow loop as well as the precision can tell.

    The measure is the loop itself: how far each of its arrays moves when every weight moves by one rounding. Two
    correct orders of summation differ by a small multiple of that, however ill-conditioned the drawn case is; a wrong
    term differs by many powers of ten more.

    Args:
        network: whose weights both read; its state is the same before each call and at the end.
        fast: returns name to result (similarities, gradients, statistics).
        loop: returns the same names, and perhaps gradients that vanish in exact arithmetic and that ``fast`` lacks.
    """
    state = {name: x.clone() for name, x in network.state_dict().items()}

    def results(of):
        found = {name: x.detach().clone().double() for name, x in of().items()}
        network.load_state_dict(state)
        return found

    found, expected = results(fast), results(loop)
    generator, precision = torch.Generator().manual_seed(0), next(network.parameters()).dtype
    with torch.no_grad():
        for weight in network.parameters():
            signs = torch.randint(0, 2, weight.shape, generator=generator) * 2 - 1
            weight.mul_(1 + signs.to(weight) * torch.finfo(precision).eps)
    moved = results(loop)
    assert found.keys() <= expected.keys()
    # What is zero in exact arithmetic shows the rounding of its terms, and those are as large as other arrays.
    largest = max(x.abs().max().item() for x in expected.values())
    for name, want in expected.items():
        movement = (moved[name] - want).abs().max().item()
        allowed = ROUNDINGS * max(movement, torch.finfo(precision).eps * largest)
        deviation = (found.get(name, torch.zeros_like(want)) - want).abs().max().item()
        assert deviation <= allowed, f"{name}: deviates by {deviation:.1e}, the loop moves by {movement:.1e}"


def as_doubles(values):
    """A tensor, array, number or list as an array of float64."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)

"""Row statistics by name."""

import noiseproof


def test_the_sums_of_a_loss_come_in_the_order_in_which_their_gradients_are_added():
    from noiseproof.core.statistics import needs_key_of

    kinds = [key.split(" ")[0] for key in needs_key_of(noiseproof.ANLCE().needs)[0]]
    assert kinds == ["nll", "clipped_focal"]

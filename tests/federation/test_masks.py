"""The derivation of masks and participants: fixed for ever by these vectors, and uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psofed.attacks import Gaussian
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.federation.protocol.archive import read_archive
from psofed.federation.protocol.corruption import draw_attack, draw_normals
from psofed.federation.protocol.masks import DerivedMasks, Sharing, derive_words
from psofed.federation.server.exchange import draw_participants

pytestmark = pytest.mark.federation

seeds = st.integers(0, 2**63 - 1)
nodes = st.integers(0, 2**64 - 1)
rounds = st.integers(1, 2**40)


@pytest.mark.parametrize("pattern", ["random", "round-robin"])
@given(seed=seeds, node=nodes, n=rounds, dimension=st.integers(1, 200), data=st.data())
def test_a_mask_holds_exactly_m_different_entries(pattern, seed, node, n, dimension, data):
    shared = data.draw(st.integers(1, dimension))
    masks = DerivedMasks(seed=seed, dimension=dimension, num_shared=shared, pattern=pattern, coordinated=False)
    indices = masks.indices(n, node)
    assert len(indices) == shared == len(set(indices.tolist()))
    assert (np.diff(indices) > 0).all()
    assert indices[0] >= 0
    assert indices[-1] < dimension
    assert (indices == DerivedMasks(**vars(masks)).indices(n, node)).all()


@given(seed=seeds, n=rounds, some=nodes, other=nodes)
def test_coordinated_masks_are_the_same_for_all_nodes(seed, n, some, other):
    masks = DerivedMasks(seed=seed, dimension=50, num_shared=7)
    assert (masks.indices(n, some) == masks.indices(n, other)).all()


def test_round_robin_visits_every_entry_in_turn():
    masks = DerivedMasks(seed=3, dimension=10, num_shared=2, pattern="round-robin")
    visited = np.concatenate([masks.indices(n, 0) for n in range(1, 6)])
    assert sorted(visited.tolist()) == list(range(10))
    assert (masks.indices(1, 0) == masks.indices(6, 0)).all()


def test_every_entry_is_drawn_equally_often():
    """Chi-squared over 20 entries and 4000 rounds, within 5 standard deviations of its mean."""
    masks = DerivedMasks(seed=11, dimension=20, num_shared=5)
    counts = np.bincount(np.concatenate([masks.indices(n, 0) for n in range(1, 4001)]), minlength=20)
    variance = 4000 * 0.25 * 0.75 * 20 / 19
    chi_squared = float(((counts - 1000) ** 2).sum() / variance)
    assert abs(chi_squared - 19) < 5 * np.sqrt(2 * 19)


def test_large_models_are_looked_at_block_by_block():
    masks = DerivedMasks(seed=7, dimension=3_000_000, num_shared=30_000)
    words = derive_words(7, 0, 9, 1, 3_000_000)
    literal = np.sort(np.argsort(words, kind="stable")[:30_000])
    assert (masks.indices(9, 0) == literal).all()


def test_participants_do_not_depend_on_the_order_of_nodes_and_hardly_on_the_others():
    everybody = list(range(100, 120))
    drawn = draw_participants(5, 4, everybody, 6)
    assert drawn == draw_participants(5, 4, everybody[::-1], 6)
    without = draw_participants(5, 4, [node for node in everybody if node != drawn[0]], 6)
    assert set(drawn[1:]) < set(without)


@pytest.mark.parametrize("field", [{"seed": -1}, {"num_shared": 11}, {"pattern": "best"}])
def test_bad_settings_are_named(field):
    with pytest.raises(InvalidValueError, match=next(iter(field))):
        DerivedMasks(**{"seed": 0, "dimension": 10, "num_shared": 1, **field})


def test_a_share_is_a_count_or_a_fraction():
    assert Sharing(0.01).derived(1_000_000).num_shared == 10_000
    assert Sharing(1e-9).derived(10).num_shared == 1
    for bad in (0, 11, 0.0, 1.5, float("nan")):
        with pytest.raises(InvalidValueError):
            Sharing(bad).derived(10)


def philox_block(key, counter):
    """Philox4x64-10 as Salmon et al. (2011) publish it, in plain integers."""
    mask = 2**64 - 1
    k0, k1 = key
    x0, x1, x2, x3 = counter
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * x0, 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * x2, 2**64)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return [x0, x1, x2, x3]


WORDS = {
    (0, 0, 1, 1): [0xA709553CCFBCD771, 0xEEE2E7B919F8DF93, 0xBF6A91CA440902E0, 0x6C103430DE3310E4],
    (1, 7, 5, 1): [0xE26F671D5D58EEC9, 0x213CF9698BE84A49, 0x43C62501F90282AE, 0xC05DCDE14E618571],
    (2**63 - 1, 2**64 - 1, 2**31, 3): [0x4746B4BCF9A0B269, 0x4D8D88D0C9E690C9, 0x6459D99979FF6A75, 0x78C79AAAB01E6D95],
}


@pytest.mark.parametrize("case", WORDS)
def test_the_words_are_the_specified_ones(case):
    seed, node, n, purpose = case
    assert derive_words(seed, node, n, purpose, 4).tolist() == WORDS[case]
    assert philox_block((seed, node), (1, n, purpose, 1)) == WORDS[case]


@given(seed=seeds, node=nodes, n=rounds, purpose=st.integers(1, 4), block=st.integers(0, 2**30))
def test_the_words_are_those_of_an_independent_implementation(seed, node, n, purpose, block):
    words = derive_words(seed, node, n, purpose, 4, start=4 * block)
    assert words.tolist() == philox_block((seed, node), (block + 1, n, purpose, 1))


def test_the_masks_are_the_specified_ones():
    """The vectors of docs/wire.md; a change here needs a new version of the derivation."""
    assert DerivedMasks(seed=0, dimension=20, num_shared=5).indices(1, 0).tolist() == [6, 7, 8, 10, 11]
    own = DerivedMasks(seed=42, dimension=20, num_shared=5, coordinated=False)
    assert own.indices(3, 12345678901234567890).tolist() == [1, 3, 9, 11, 12]
    turn = DerivedMasks(seed=42, dimension=7, num_shared=3, pattern="round-robin")
    assert [turn.indices(n, 0).tolist() for n in (1, 2)] == [[0, 1, 2], [3, 4, 5]]
    large = DerivedMasks(seed=7, dimension=1_000_000, num_shared=10_000).indices(9, 0)
    assert large[:4].tolist() == [111, 318, 331, 433]
    assert int(large.sum()) == 5_038_390_153
    assert draw_participants(42, 3, [1, 2, 3, 2**64 - 1], 2) == (3, 2**64 - 1)


def test_the_normals_of_an_attack_are_the_specified_ones():
    """A Byzantine node draws by the seed, the node and the round; changing them changes every attacked run."""
    attack = Gaussian(num_byzantine=1, probability=0.5)
    assert draw_normals(7, 11, 3, 2).tolist() == [0.7556248444584588, 0.2063731566627319]
    attacks = [draw_attack(attack, 7, 11, n, 1)[0] for n in range(8)]
    assert attacks == [False, True, False, False, True, False, False, False]
    # Whether it attacks is drawn first, the numbers after it.
    assert draw_attack(attack, 7, 11, 3, 1)[1].tolist() == [0.2063731566627319]


def test_an_archive_never_pickles(tmp_path):
    np.savez(tmp_path / "state.npz", document=np.array([{}], dtype=object), values=np.zeros(1))
    with pytest.raises(PsofedError, match="allow_pickle"):
        read_archive(tmp_path / "state.npz", "checkpoint", 1)

"""PSO-Fed in other people's tools: the engine's update, in pieces or at once."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import psofed
from psofed.common.errors import PsofedError
from psofed.sklearn import FederatedRegressor

pytestmark = pytest.mark.common

# As with scikit-learn's SGDRegressor: two steps are not one step of twice the size.
NOT_IN_STREAMS = {"check_sample_weight_equivalence_on_dense_data": "a weight is not a number of repetitions"}


@pytest.mark.filterwarnings("ignore:The models diverged")  # of inputs that nobody has scaled
@parametrize_with_checks([FederatedRegressor()], expected_failed_checks=lambda _: NOT_IN_STREAMS)
def test_the_regressor_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


def table(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    X, clients = rng.standard_normal((rows, 3)), rng.choice(["north", "south", "west"], rows)
    return X, X @ [1.0, -2.0, 0.5] + 3.0 + 0.1 * rng.standard_normal(rows), clients


OPTIONS = {"stepsize": 0.04, "num_shared": 2, "num_participants": 2, "random_state": 5}


def test_the_update_is_that_of_simulate():
    """A hand-written PSO-Fed on the draws of trial 0."""
    from psofed.simulation.online import OnlineFederation, online_scenario

    X, y, clients = table()
    made = FederatedRegressor(**OPTIONS).fit(X, y, clients)
    scenario = online_scenario(3, 4, num_shared=2, num_participants=2, stepsize=0.04)
    federation = OnlineFederation(scenario, 5)
    rows = [np.column_stack([X, np.ones(len(X))])[clients == name] for name in made.clients_]
    targets = [y[clients == name] for name in made.clients_]
    federation.add(rows, targets)
    iterations = federation.iteration + federation.num_waiting
    exchange = federation._run._drawer.draw(0, iterations)
    models, server = np.zeros((3, 4)), np.zeros(4)
    for n in range(iterations):
        for k in exchange.participants[n, 0]:
            entries = exchange.downloaded[n, 0, 0]
            models[k, entries] = server[entries]
        for k in range(3):
            if n < len(targets[k]):
                x = rows[k][n]
                models[k] += 0.04 * (targets[k][n] - models[k] @ x) * x
        uploads = np.repeat(server[None], 2, axis=0)
        for p, k in enumerate(exchange.uploaders[n, 0]):
            entries = exchange.uploaded[n, 0, 0]
            uploads[p, entries] = models[k, entries]
        server = uploads.mean(axis=0)
    np.testing.assert_allclose(made.client_coef_, models[:, :3], rtol=1e-10)
    np.testing.assert_allclose(made.coef_, server[:3], rtol=1e-10)
    assert made.intercept_ == pytest.approx(server[3], rel=1e-10)


@pytest.mark.parametrize("cuts", [[100], [1, 2, 3, 100, 101], list(range(30, 240, 30))])
def test_rows_in_pieces_give_the_bits_of_all_rows_at_once(cuts):
    X, y, clients = table()
    whole = FederatedRegressor(**OPTIONS).fit(X, y, clients)
    for order in (np.arange(240), np.argsort(clients, kind="stable")):  # as they came; client after client
        pieces = FederatedRegressor(**OPTIONS)
        for at in np.split(order, cuts):
            pieces.partial_fit(X[at], y[at], clients[at], all_clients=["west", "south", "north"])
            pieces.predict(X)  # looking changes nothing
            pieces = pickle.loads(pickle.dumps(pieces))
        assert (whole.client_coef_ == pieces.client_coef_).all()
        assert (whole.coef_ == pieces.coef_).all()


def test_each_client_has_its_own_model_and_strangers_are_refused_by_name():
    X, y, clients = table()
    y = y + 5.0 * (clients == "west")
    own = FederatedRegressor(0.04, num_shared=1, num_participants=1, model="client").fit(X, y, clients)
    assert own.score(X, y, clients=clients) > FederatedRegressor(0.04).fit(X, y, clients).score(X, y) + 0.1
    assert own.client_coef_.shape == (3, 3)
    with pytest.raises(ValueError, match="pass clients="):
        own.predict(X)
    with pytest.raises(ValueError, match="unknown clients: east"):
        own.predict(X[:1], ["east"])
    with pytest.raises(ValueError, match="unknown clients: east"):
        own.partial_fit(X[:1], y[:1], ["east"])
    with pytest.raises(ValueError, match="each of the 240 rows"):
        own.fit(X, y, clients[:-1])


def test_a_weight_multiplies_the_stepsize_and_zero_leaves_the_row_out():
    X, y, clients = table()
    weights = np.random.default_rng(1).integers(0, 2, len(y))
    fitted = FederatedRegressor(**OPTIONS).fit(X, y, clients, sample_weight=2.0 * weights)
    kept = weights > 0
    plain = FederatedRegressor(**{**OPTIONS, "stepsize": 0.08}).fit(X[kept], y[kept], clients[kept])
    np.testing.assert_allclose(fitted.client_coef_, plain.client_coef_, rtol=1e-10)
    assert fitted.intercept_ == pytest.approx(plain.intercept_, rel=1e-10)
    pieces = FederatedRegressor(**OPTIONS)
    for at in np.split(np.arange(len(y)), [100]):
        pieces.partial_fit(X[at], y[at], clients[at], sample_weight=2.0 * weights[at])
    assert (pieces.coef_ == fitted.coef_).all()
    with pytest.raises(ValueError, match="at least one"):
        FederatedRegressor().fit(X, y, clients, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        FederatedRegressor().fit(X, y, clients, sample_weight=-np.ones(len(y)))


def test_a_diverging_fit_warns():
    from sklearn.exceptions import ConvergenceWarning

    X, y, clients = table()
    with pytest.warns(ConvergenceWarning, match="reduce the stepsize"):
        FederatedRegressor().fit(100 * X, y, clients)


def test_it_works_in_a_pipeline_and_in_a_grid_search_with_grouped_splits():
    X, y, clients = table()
    with config_context(enable_metadata_routing=True):
        regressor = FederatedRegressor(num_shared=2)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), regressor), {"federatedregressor__stepsize": [1e-4, 0.05]}, cv=GroupKFold(3)
        ).fit(1000 * X, y, clients=clients, groups=clients)
        assert search.best_params_ == {"federatedregressor__stepsize": 0.05}
        assert len(search.best_estimator_[-1].clients_) == 3
        personal = clone(regressor).set_params(model="client")
        pipeline = make_pipeline(StandardScaler(), personal).fit(X, y, clients=clients)
        assert np.corrcoef(pipeline.predict(X, clients=clients), y)[0, 1] > 0.95


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "psofed.sklearn")
    with pytest.raises(PsofedError, match=r"pip install -e '\.\[sklearn\]'"):
        import psofed.sklearn  # noqa: F401


def test_psofed_itself_does_not_import_scikit_learn():
    assert "sklearn" not in psofed.__all__


def test_clients_that_learn_row_by_row_follow_the_same_recursion():
    """In step, rows of all clients make an iteration; out of step, a client's second row ends it."""
    from psofed.simulation.online import OnlineFederation, RowFederation, online_scenario

    X, y, _ = table()
    names, options = ("north", "south", "west"), {"num_shared": 2, "num_participants": 2, "stepsize": 0.04}
    rows = RowFederation(names, seed=5, **options)
    for n, (x, target) in enumerate(zip(X, y, strict=True)):
        rows.learn(names[n % 3], dict(zip("abc", x, strict=True)), target)
    whole = OnlineFederation(online_scenario(3, 4, **options), 5)
    constant = np.column_stack([X, np.ones(len(X))])
    whole.add([constant[k::3] for k in range(3)], [y[k::3] for k in range(3)])
    assert list(rows.weights().values()) == whole.server[:3].tolist()
    assert rows.intercept("west") == whole.models[2, 3]

    rows = RowFederation(names, seed=5, **options)
    for n in range(9):  # north is alone: every row of its own makes an iteration
        rows.learn("north", {"b": X[n, 1], "a": X[n, 0]}, y[n])
    alone = OnlineFederation(online_scenario(3, 3, **options), 5)
    none = np.empty((0, 3))
    alone.add([np.column_stack([X[:9, [1, 0]], np.ones(9)]), none, none], [y[:9], none[:, 0], none[:, 0]])
    assert list(rows.weights("north")) == ["b", "a"]
    assert rows.predict("north", {"a": 2.0}) == pytest.approx(alone.models[0] @ [0.0, 2.0, 1.0])
    with pytest.raises(PsofedError, match="unknown feature c; the features are b, a"):
        rows.learn("north", {"c": 1.0}, 1.0)
    with pytest.raises(PsofedError, match="unknown client 'east'; there are north, south, west"):
        rows.learn("east", {"a": 1.0}, 1.0)


def test_one_client_that_shares_everything_is_rivers_linear_regression():
    """The MAE that river's documentation prints; it runs where river is installed."""
    pytest.importorskip("river")
    from river import datasets, evaluate, metrics, preprocessing

    from psofed.river import RiverFederation

    federation = RiverFederation(["all"], stepsize=0.02, intercept_stepsize=0.2)
    model = preprocessing.StandardScaler() | federation.client("all")
    score = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    assert f"{score.get():.6f}" == "0.558735"
    assert f"{federation.intercept():.6f}" == "35.617671"


def test_a_client_passes_all_of_rivers_estimator_checks():
    checks = pytest.importorskip("river.checks")
    from psofed.river import RiverFederation

    client = RiverFederation(["north", "south"]).client("north")
    for check in checks.yield_checks(client):
        check(client.clone())


def test_features_that_appear_later_begin_at_zero():
    pytest.importorskip("river")
    from psofed.river import RiverFederation

    growing, full = RiverFederation(["north", "south"]), RiverFederation(["north", "south"], features="abc")
    X, y, _ = table()
    for n, (x, target) in enumerate(zip(X, y, strict=True)):
        row = dict(zip("abc"[: 1 + n // 100], x, strict=False))
        for federation in (growing, full):
            federation.client(("north", "south")[n % 2]).learn_one(row, target)
    assert growing.weights() == pytest.approx(full.weights(), rel=1e-12)
    assert growing.intercept("south") == pytest.approx(full.intercept("south"), rel=1e-12)
    assert growing.predict("north", {"new": 1e9}) == growing.intercept("north")
    clone = growing.client("north").clone()
    assert clone.weights == dict.fromkeys("abc", 0.0)
    assert growing.client("north").clone(include_attributes=True).weights == growing.weights("north")

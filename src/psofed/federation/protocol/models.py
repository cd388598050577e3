"""Models of NumPy, scikit-learn and PyTorch as Flower's arrays and back, importing none of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from psofed.common.errors import InvalidValueError

_FITTED = (
    "coef_",
    "intercept_",
    "coefs_",
    "intercepts_",
)  # what scikit-learn's linear models and perceptrons hold


def arrays_of(model: Any) -> ArrayRecord:
    """Return a model's parameters as an ArrayRecord.

    Parameters
    ----------
    model : array, sequence or mapping of arrays, scikit-learn estimator, PyTorch module or state_dict
        An estimator must have been fitted or had its ``coef_`` and ``intercept_`` set.

    Examples
    --------
    >>> list(arrays_of(np.zeros(3)))
    ['0']
    >>> list(arrays_of({"weight": np.zeros((2, 2)), "bias": np.zeros(2)}))
    ['weight', 'bias']
    """
    if isinstance(model, ArrayRecord):
        return model
    if callable(getattr(model, "state_dict", None)):
        model = model.state_dict()
    if isinstance(model, np.ndarray):
        return ArrayRecord([model])
    if isinstance(model, Mapping):
        return ArrayRecord({str(name): Array(_as_numpy(value)) for name, value in model.items()})
    if isinstance(model, Sequence) and not isinstance(model, str | bytes):
        return ArrayRecord([_as_numpy(value) for value in model])
    parameters = _estimator_parameters(model)
    if not parameters:
        raise InvalidValueError(
            "model",
            type(model).__name__,
            "an array, arrays, a fitted scikit-learn estimator, or a PyTorch module",
        )
    return ArrayRecord({name: Array(value) for name, value in parameters.items()})


def load_into(model: Any, arrays: ArrayRecord) -> Any:
    """Put `arrays` back into what :func:`arrays_of` took them from, and return it.

    A NumPy array is written in place; sequences and mappings of arrays are returned new.
    """
    if callable(getattr(model, "load_state_dict", None)):
        model.load_state_dict(arrays.to_torch_state_dict())
        return model
    values = {name: array.numpy() for name, array in arrays.items()}
    if isinstance(model, np.ndarray):
        (value,) = values.values()
        model[...] = value
        return model
    if isinstance(model, Mapping):
        return values
    if isinstance(model, Sequence):
        return list(values.values())
    for name in _FITTED:
        if name in values:
            setattr(model, name, values[name])
        elif f"{name}.0" in values:
            count = sum(key.startswith(f"{name}.") for key in values)
            setattr(model, name, [values[f"{name}.{i}"] for i in range(count)])
    return model


def _estimator_parameters(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _FITTED:
        value = getattr(model, name, None)
        if isinstance(value, list):
            found |= {f"{name}.{i}": np.asarray(entry) for i, entry in enumerate(value)}
        elif value is not None:
            found[name] = np.asarray(value)
    return found


def _as_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)

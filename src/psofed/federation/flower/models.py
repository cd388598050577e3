"""Contents of Flower's messages: models of NumPy, scikit-learn and PyTorch, importing none of them, and our frames."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError

RECORD, FRAME = "psofed", "frame"
# What scikit-learn's linear models and perceptrons have learned.
_FITTED = ("coef_", "intercept_", "coefs_", "intercepts_")


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
        model = [model]
    if isinstance(model, Mapping):
        arrays = {str(name): _as_numpy(value) for name, value in model.items()}
    elif isinstance(model, Sequence) and not isinstance(model, str | bytes):
        arrays = {str(place): _as_numpy(value) for place, value in enumerate(model)}
    else:
        arrays = _estimator_parameters(model)
        if not arrays:
            allowed = "an array, arrays, a fitted scikit-learn estimator, or a PyTorch module"
            raise InvalidValueError("model", type(model).__name__, allowed)
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def numpy_of(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record by name."""
    return {name: array.numpy() for name, array in arrays.items()}


def load_into(model: Any, arrays: ArrayRecord) -> Any:
    """Put `arrays` back into what :func:`arrays_of` took them from, and return it.

    A NumPy array is written in place; sequences and mappings of arrays are returned new.
    """
    if callable(getattr(model, "load_state_dict", None)):
        model.load_state_dict(arrays.to_torch_state_dict())
        return model
    values = numpy_of(arrays)
    if isinstance(model, np.ndarray):
        (model[...],) = values.values()
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
            setattr(model, name, [values[f"{name}.{layer}"] for layer in range(count)])
    return model


def wrap_frame(frame: bytes) -> RecordDict:
    """Return the content of a message that carries a frame."""
    return RecordDict({RECORD: ConfigRecord({FRAME: frame})})


def frame_of(content: RecordDict) -> bytes | None:
    """Return the frame that a message contains, or None."""
    record = content.get(RECORD)
    frame = record.get(FRAME) if isinstance(record, ConfigRecord) else None
    return frame if isinstance(frame, bytes) else None


def _estimator_parameters(model: Any) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name in _FITTED:
        value = getattr(model, name, None)
        if isinstance(value, list):
            parameters |= {f"{name}.{layer}": np.asarray(entry) for layer, entry in enumerate(value)}
        elif value is not None:
            parameters[name] = np.asarray(value)
    return parameters


def _as_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)

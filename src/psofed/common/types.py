"""Names of shapes that many modules speak of."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Numbers of clients and of entries, as kernels keep them.
IndexArray = NDArray[np.int32]

# Called now and then with (done, total); what is under way may count in part.
ProgressCallback = Callable[[float, int], None]

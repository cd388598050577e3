"""Built-in learners, one file each, found by name: ``psofed.learners.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.learners.leaky_lms import LeakyLMS as LeakyLMS
    from psofed.parts.learners.lms import LMS as LMS
    from psofed.parts.learners.nlms import NLMS as NLMS
    from psofed.parts.learners.rls import RLS as RLS
    from psofed.parts.learners.sign_lms import SignLMS as SignLMS
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("learner", name)


def __dir__() -> list[str]:
    return class_names("learner")

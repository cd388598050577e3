"""Compile kernels with Numba and cache them on disk, in folders named by digests of their sources.

Numba's own cache looks only at the file a kernel stands in; a kernel would survive a change of a function it has
inlined from elsewhere, and be compiled again when a comment changes. So the engine's kernels are kept in a folder named
after the engine's code, and those that hold a part's body (:mod:`psofed.engine.bodies`) in one named after that body's
code as well: an edited attack recompiles itself and nothing else, and comments and docstrings recompile nothing.
Numba optimises and emits a function for itself, and again in each kernel that calls it. Functions that only kernels
call (:func:`kernel_part`) are spared the first, which halves the time of compiling. That needs Numba's internals, so it
is done for the versions that were tested; any other compiles in its own way, with the same bits. Likewise for starting:
Numba would set up its compiler (some hundred modules) before it loads a kernel from disk, which needs none of it.

Importing this module imports Numba: nothing that must start instantly may do so.
"""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, overload

from psofed.common.fingerprint import cache_folder, code_digest, function_digest, source_digest
from psofed.common.lazy import without_modules

# Numba imports these to check SciPy's version, to read its configuration file, and to mark lines as covered.
_READS_YAML = Path(".numba_config.yaml").exists()
with without_modules("scipy", "coverage", *() if _READS_YAML else ("yaml",)):
    import numba
    from llvmlite import binding
    from numba.core import ccallback, dispatcher
    from numba.core import config as numba_config
    from numba.core.caching import FunctionCache
    from numba.core.cgutils import create_struct_proxy
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler
    from numba.core.registry import CPUDispatcher
    from numba.core.runtime.nrt import _nrt  # type: ignore[attr-defined]
    from numba.core.targetconfig import TargetConfig
    from numba.extending import intrinsic, register_jitable

# Compiling changes how a function runs, not what it takes and returns; so kernels are checked by their annotations.
F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")

# Turns the address of a hook into what can be called, inside a kernel.
HookTaker = Callable[[int], Callable[..., None]]

_SETTING_CACHE = Lock()
_KNOWN_MINORS = ("0.68",)  # versions of Numba whose internals `_Kernel` and `_KernelPart` were tested with
_HAS_KNOWN_INTERNALS = numba.__version__.rpartition(".")[0] in _KNOWN_MINORS


def _load_numba_without_scipy() -> None:
    """Import Numba's array support without SciPy's linear algebra, which would take a quarter of a second.

    Numba imports it only to note whether it is there; it is, since psofed depends on it. Kernels that call it import
    it when they are compiled.
    """
    from numba.np import linalg

    look = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        from numba.np import arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = look


def _option_values(options: Any) -> dict[str, Any]:
    """Return the values of all of a compiler's options; Numba asks for them whenever it types a call."""
    return {**_option_defaults(options.__class__), **options._values}


@cache
def _option_defaults(kind: Any) -> dict[str, Any]:
    return {name: about.default for name, about in kind.options.items()}


if _HAS_KNOWN_INTERNALS:
    TargetConfig.values = _option_values  # type: ignore[method-assign]
else:  # its first kernel will set up the compiler
    _load_numba_without_scipy()


@overload
def compiled(function: F) -> F: ...
@overload
def compiled(*, allocates: bool = True, by_content: bool = False) -> Callable[[F], F]: ...
def compiled(function: Any = None, *, allocates: bool = True, by_content: bool = False) -> Any:
    """Compile `function`, which Python calls, releasing the GIL while it runs.

    No fast-math flag is set: every operation rounds as IEEE 754 says, so a lane's bits do not depend on
    how many lanes run beside it, nor on the machine.

    Parameters
    ----------
    function : callable
        A module-level function, or the product of a factory whose free variables are numbers.
    allocates : bool
        Whether it makes arrays. One that makes none counts no references to those it is given either, which in
        an iteration with little to do takes longer than the iteration itself.
    by_content : bool
        Keep it in a folder named after its code and that of all functions it calls. Needed outside the engine, whose
        kernels all share one folder.
    """
    if function is None:
        return partial(_compile, allocates=allocates, by_content=by_content)
    return _compile(function, allocates=allocates, by_content=by_content)


def _compile(function: Callable[..., Any], *, allocates: bool, by_content: bool) -> Any:
    options: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True, **pipeline(allocates)}
    with own_cache(function_digest(function) if by_content else ""):
        kernel = numba.njit(cache=True, nogil=True, **options)(function)
    if _HAS_KNOWN_INTERNALS:
        kernel.__class__ = _KernelDispatcher
    return kernel


@overload
def kernel_part(function: F) -> F: ...
@overload
def kernel_part(*, inline: bool = False) -> Callable[[F], F]: ...
def kernel_part(function: Any = None, *, inline: bool = False) -> Any:
    """Compile a function that makes no arrays, for kernels to call; `inline` it wherever they do.

    Frames that run as plain Python call some of them as well. They are then compiled by themselves.
    """
    if function is None:
        return partial(kernel_part, inline=inline)
    options = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, **overload_options(inline)}
    part = numba.njit(**options)(function)
    part.__class__ = _PartDispatcher
    return part


def returns_slice(function: F) -> F:
    """Compile a function that returns part of an array and that only kernels call."""
    # Without counting references, only what is inlined before its types are known may do so.
    return cast("F", numba.njit(inline="always")(function))


def jitable(function: F, inline: bool = False) -> F:
    """Let kernels and frames call a plain function; it stays one."""
    register_jitable(**overload_options(inline))(function)
    return function


def overload_options(inline: bool) -> dict[str, Any]:
    """Return Numba's options for the compiled form of a plain function."""
    own = {"pipeline_class": _PartCompiler} if _HAS_KNOWN_INTERNALS else {}
    return {"no_cfunc_wrapper": True, "forceinline": inline, **own}


def pipeline(allocates: bool) -> dict[str, Any]:
    """Return Numba's options for a kernel; where references are counted, pruning them needs Numba's own passes."""
    if allocates:
        return {}
    return {"_nrt": False, **({"pipeline_class": _KernelCompiler} if _HAS_KNOWN_INTERNALS else {})}


class _Kernel(JITCodeLibrary):
    """A kernel's code, optimised once as a whole and not before, function by function."""

    def add_llvm_module(self, module: Any) -> None:
        for function in module.functions:
            # What reads Python's arguments runs once a call, and is as long as the rest.
            if function.name.startswith("_ZN7cpython") and not function.is_declaration:
                function.add_function_attribute("noinline")
                function.add_function_attribute("optnone")
        self._final_module.link_in(module)

    def _optimize_final_module(self) -> None:
        config: Any = numba_config
        options = binding.create_pipeline_tuning_options(int(config.OPT))
        options.loop_vectorization, options.slp_vectorization = config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        # Loops run over 16 lanes or a handful of entries. Interleaved or unrolled, one vector loop would take 32 lanes
        # at a time, and 16 would be left to the slow loop behind it.
        options.loop_interleaving = options.loop_unrolling = False
        builder = binding.create_pass_builder(self._codegen._tm, options)
        passes = builder.getModulePassManager()
        passes.add_loop_rotate_pass()
        passes.add_instruction_combine_pass()
        passes.add_jump_threading_pass()
        passes.run(self._final_module, builder)


class _KernelPart(JITCodeLibrary):
    """Code that is only linked into that of kernels, where it is optimised and emitted."""

    def add_llvm_module(self, module: Any) -> None:
        self._final_module.link_in(module)

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        # There is no code: Python's calls are answered by `_PartDispatcher`. Any other would be a TypeError.
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0

    @property
    def codegen(self) -> Any:
        # Numba would write the function's environment, which only calls from Python need, into emitted code.
        return SimpleNamespace(set_env=lambda name, environment: None)


class _KernelDispatcher(CPUDispatcher):
    """A kernel that asks for Numba's extensions only when it has to be compiled."""

    def _compilation_chain_init_hook(self) -> None:
        pass

    def compile(self, sig: Any) -> Any:
        with without_garbage_collection():
            return super().compile(sig)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Do not look for garbage inside: compiling makes millions of objects, most of which stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _PartDispatcher(CPUDispatcher):
    """A part of kernels, which Python can call too."""

    def __call__(self, *arguments: Any) -> Any:
        return _compile_for_python(self.py_func)(*arguments)


@cache
def _compile_for_python(function: Callable[..., Any]) -> Any:
    return numba.njit(error_model="numpy", nogil=True)(function)


class _KernelCompiler(Compiler):
    _library: type[JITCodeLibrary] = _Kernel

    def compile_extra(self, function: Any) -> Any:
        self.state.library = self._library(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class _PartCompiler(_KernelCompiler):
    _library = _KernelPart


def instruction(define: Callable[Concatenate[Any, P], Any]) -> Callable[P, Any]:
    """Make a kernel intrinsic from LLVM IR; callers omit the typing context."""
    return cast("Callable[P, Any]", intrinsic(define))


def hook_taker(signature: Any) -> HookTaker:
    """Return a function that turns an address into a hook with the given `signature`, inside a kernel.

    Numba takes 0.04 ms to see what kind of function an argument is, at every call; a number it sees at once.
    """
    kind = numba.types.FunctionType(signature)

    @instruction
    def take(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
        def emit(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            function = create_struct_proxy(kind)(context, builder)
            function.c_addr = builder.inttoptr(arguments[0], function.c_addr.type)
            return function._getvalue()

        return kind(address), emit

    return take


_CACHE: Any = FunctionCache._impl_class
_Locator: Any = _CACHE._locator_classes[0]  # takes the folder from CACHE_DIR


class _KernelLocator(_Locator):  # type: ignore[misc]
    """Tells Numba which of its files is a kernel's, in a folder whose name already stands for the code.

    Numba would drop a kernel when any byte of its file changes, and look for it by its line.
    """

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._code = code_digest(function)

    def get_source_stamp(self) -> str:
        """Return what must not have changed since the kernel was compiled: nothing besides the folder's name."""
        return ""

    def get_disambiguator(self) -> str:
        """Return what tells apart functions of one name in one file."""
        return self._code


class _KernelCache(FunctionCache):
    """Loads a kernel from disk without setting up the compiler, or else sets it up."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return a kernel for a `signature`, or None if it is not on disk."""
        _add_runtime_symbols()
        with self._guard_against_spurious_io_errors():
            loaded = self._load_overload(signature, target)
        if loaded is None:
            _load_numba_without_scipy()
            target.refresh()
        return loaded


@cache
def _add_runtime_symbols() -> None:
    """Tell LLVM where functions of Numba's runtime are that kernels may call."""
    for name, address in _nrt.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@contextmanager
def own_cache(made_of: str = "") -> Iterator[Path]:
    """Let Numba cache what is compiled inside in psofed's folder; `made_of` is a digest of further sources."""
    # Numba reads the folder when it decorates, so setting it for that moment leaves other users of it alone.
    config: Any = numba_config
    with _SETTING_CACHE:
        previous, locators = config.CACHE_DIR, _CACHE._locator_classes
        folder = (Path(previous) / _folder_name() if previous else _cache_folder()) / made_of
        config.CACHE_DIR, _CACHE._locator_classes = str(folder), [_KernelLocator]
        users: Any = (dispatcher, ccallback) if _HAS_KNOWN_INTERNALS else ()
        for module in users:
            module.FunctionCache = _KernelCache
        try:
            yield folder
        finally:
            config.CACHE_DIR, _CACHE._locator_classes = previous, locators
            for module in users:
                module.FunctionCache = FunctionCache


def is_cold() -> bool:
    """Tell whether this version of the engine has yet to be compiled on this machine."""
    config: Any = numba_config
    with _SETTING_CACHE:  # another thread may be compiling
        folder = Path(config.CACHE_DIR) / _folder_name() if config.CACHE_DIR else _cache_folder()
    # Numba makes the folder when it decorates, so that it is there says nothing.
    return not any(folder.rglob("*.nbi"))


@cache
def _cache_folder() -> Path:
    return cache_folder() / _folder_name()


@cache
def _folder_name() -> str:
    return f"kernels-{source_digest('engine')}-{numba.__version__}"

"""Which tests should notice a change of a module: few and quick ones, by the beginning of the module's path."""

UNIT, EXACT, CONFORM, FED = (
    "tests/unit/test_",
    "tests/exactness/test_",
    "tests/conformance/test_",
    "tests/federation/test_federation_",
)
BITS = f"{EXACT}same_bits.py"
SOURCES = f"{UNIT}theory_sources.py"
THEORY = (
    SOURCES,
    f"{UNIT}theory.py",
    f"{EXACT}theory_equals_its_references.py",
    f"{EXACT}theory_equals_enumeration.py",
    f"{EXACT}theory_corners.py",
    f"{EXACT}theory_many_at_once.py",
)
DOCUMENTS = "tests/docs/test_documentation.py"
PAGES = f"{DOCUMENTS}::test_pages_made_from_code_are_up_to_date"  # with every option's default and range
SOLVERS = f"{UNIT}theory_solvers.py"
AGREE = "tests/agreement/test_"
RULES = (f"{UNIT}aggregations.py", f"{CONFORM}aggregations.py")
ATTACKS = (f"{UNIT}attacks.py", f"{CONFORM}attacks.py")
DEFENCE = (f"{EXACT}defence_equals_reference.py", f"{UNIT}defence.py")
FEATURES = (f"{UNIT}rff.py", f"{EXACT}drift_rff_equal_reference.py")
OWN = (f"{UNIT}scenario.py", f"{CONFORM}own_parts.py", f"{UNIT}reading.py")
PLAIN = f"{EXACT}engine_as_plain_python.py"
PIECES, SERVER_FRAMES, ATTACK_FRAMES = (
    f"{EXACT}runs_in_pieces.py",
    f"{EXACT}server_frames_equal_plain_forms.py",
    f"{EXACT}attack_frames_equal_plain_forms.py",
)
DRAWS = f"{EXACT}draws_are_where_they_are_addressed.py"
STRATEGY = (f"{FED}strategy.py", f"{FED}reference.py")
DEPLOYED = (f"{FED}deployment.py", f"{FED}door.py")

# The longest beginning that fits is taken.
TESTS: dict[str, tuple[str, ...]] = {
    "theory/": THEORY,
    "theory/corruption": (f"{EXACT}theory_equals_enumeration.py", *THEORY),
    "theory/evasion": (f"{UNIT}evasion.py", *THEORY),
    "theory/residuals": (f"{UNIT}evasion.py", f"{UNIT}defence.py", f"{AGREE}defence_agreement.py"),
    "theory/recovery": (SOURCES, f"{UNIT}defence.py", f"{AGREE}defence_agreement.py"),
    "theory/krylov": (SOLVERS, *THEORY),
    "theory/scattered": (SOLVERS, *THEORY),
    "theory/stability": (SOLVERS, *THEORY),
    "theory/moments": (SOLVERS, *THEORY),
    "theory/stepsize": (SOLVERS, *THEORY),
    "theory/reduced": (SOLVERS, *THEORY),
    "theory/steady": (SOLVERS, *THEORY),
    "theory/tuning": (SOLVERS, *THEORY),
    "theory/window_masks": (SOLVERS, *THEORY),
    "theory/limits": (SOLVERS, f"{UNIT}theory.py", f"{AGREE}affine_attacks.py", "-k", "limit or predicted or theory"),
    "theory/samples": (*THEORY, f"{AGREE}rff_theory.py"),
    "engine/": (PLAIN, BITS, f"{EXACT}engine_equals_reference.py", PIECES),
    "engine/bodies": (f"{CONFORM}own_parts.py", f"{UNIT}compiling.py"),
    "engine/compiling": (f"{UNIT}compiling.py", BITS),
    "engine/streams": (f"{UNIT}gaussian.py", BITS, f"{UNIT}lanes.py"),
    "engine/normals": (f"{UNIT}gaussian.py", f"{UNIT}lanes.py", BITS),
    "engine/lanes": (f"{UNIT}lanes.py", BITS),
    "engine/inputs": (PLAIN, BITS, DRAWS, f"{EXACT}engine_equals_reference.py"),
    "engine/choice": (PLAIN, BITS, DRAWS, f"{UNIT}lanes.py", f"{CONFORM}patterns.py"),
    "engine/combine": (f"{UNIT}aggregations.py", f"{FED}parts.py", f"{CONFORM}aggregations.py"),
    "engine/search": (PLAIN, f"{UNIT}attacks.py", "-k", "strength"),
    "engine/attackers": (PLAIN, BITS, DRAWS, f"{UNIT}attack_clients.py", f"{UNIT}attacks.py"),
    "engine/samples": (PLAIN, BITS, PIECES, *FEATURES, f"{UNIT}own_data.py"),
    "engine/server_model": (PLAIN, BITS, PIECES, DRAWS, f"{EXACT}algorithms_equal_references.py"),
    "engine/server_side": (f"{UNIT}server_side.py", PLAIN, BITS, PIECES, *RULES, *DEFENCE),
    "engine/root_data": (PLAIN, BITS, *RULES),
    "engine/momentum": (PLAIN, f"{UNIT}server_side.py", SERVER_FRAMES, f"{EXACT}algorithms_equal_references.py"),
    "engine/pso_fed": (PLAIN, BITS, PIECES, f"{EXACT}engine_equals_reference.py", f"{UNIT}own_data.py"),
    "engine/hooks": (BITS,),
    "engine/vocabulary": (f"{UNIT}vocabulary.py", *RULES),
    "engine/test_set": (PLAIN, BITS, f"{EXACT}engine_equals_reference.py"),
    "engine/frames/attack": (ATTACK_FRAMES, *ATTACKS),
    "engine/frames/aggregation": (SERVER_FRAMES, *RULES),
    "engine/frames/defence": (SERVER_FRAMES, *DEFENCE),
    "engine/frames/drift": (PLAIN, BITS, DRAWS, f"{UNIT}drift.py", f"{EXACT}drift_rff_equal_reference.py"),
    "engine/frames/exchange": (PLAIN, f"{EXACT}algorithms_equal_references.py"),
    "engine/frames/function": (PLAIN, BITS, *FEATURES),
    "engine/frames/poison": (ATTACK_FRAMES, *ATTACKS),
    "engine/frames/pre_aggregation": (SERVER_FRAMES, f"{CONFORM}pre_aggregations.py"),
    "engine/frames/selection": (PLAIN, BITS, DRAWS, f"{CONFORM}patterns.py", f"{CONFORM}own_parts.py"),
    "parts/": OWN,
    "parts/base": (f"{UNIT}attacks.py", *OWN),
    "parts/affine": (f"{CONFORM}theory_moments.py", f"{EXACT}theory_equals_enumeration.py"),
    "parts/aggregations/": RULES,
    "parts/algorithms/": (f"{UNIT}algorithms.py", f"{CONFORM}algorithms.py", f"{EXACT}algorithms_equal_references.py"),
    "parts/attacks/": (*ATTACKS, f"{CONFORM}theory_moments.py"),
    "parts/defences/": DEFENCE,
    "parts/drifts/": (f"{UNIT}drift.py", f"{EXACT}drift_rff_equal_reference.py", f"{AGREE}drift_theory.py"),
    "parts/features": FEATURES,
    "parts/functions/": (*FEATURES, f"{UNIT}data.py"),
    "parts/models/": FEATURES,
    "parts/patterns/": (f"{CONFORM}patterns.py", f"{CONFORM}theory_moments.py"),
    "parts/plain": (*RULES, *ATTACKS, f"{CONFORM}pre_aggregations.py"),
    "parts/pre_aggregations/": (f"{CONFORM}pre_aggregations.py",),
    "parts/traffic": (f"{UNIT}results.py", f"{CONFORM}algorithms.py", f"{UNIT}algorithms.py"),
    "parts/vectors": (*RULES, *ATTACKS),
    "parts/watching": DEFENCE,
    "federation/": STRATEGY,
    "federation/app": (f"{FED}sources.py", f"{FED}deployment.py", f"{FED}agreement.py"),
    "federation/archive": (f"{FED}masks.py", f"{FED}data.py", f"{FED}deployment.py", f"{FED}strategy.py"),
    "federation/attacks": (f"{FED}masks.py", f"{FED}reference.py", f"{FED}parts.py"),
    "federation/columns": (f"{FED}data.py", f"{FED}sources.py"),
    "federation/demo": (f"{FED}deployment.py", f"{FED}agreement.py"),
    "federation/deploy/": DEPLOYED,
    "federation/deploy/bell": (f"{FED}door.py", f"{FED}processes.py"),
    "federation/deploy/node": (f"{FED}door.py", f"{FED}processes.py"),
    "federation/deploy/server": (*DEPLOYED, f"{FED}processes.py"),
    "federation/deploy/submit": (*DEPLOYED, f"{FED}processes.py"),
    "federation/deploy/superlink": (*DEPLOYED, f"{FED}processes.py"),
    "federation/deploy/traffic": (*DEPLOYED, f"{FED}processes.py"),
    "federation/deploy/upstream": (*DEPLOYED, f"{FED}processes.py"),
    "federation/export": (f"{FED}data.py",),
    "federation/files": (*DEPLOYED, f"{FED}strategy.py"),
    "federation/flower/": (f"{FED}flower.py", *DEPLOYED, f"{FED}processes.py"),
    "federation/masks": (f"{FED}masks.py", f"{FED}docs.py"),
    "federation/models": (f"{FED}models.py",),
    "federation/online": (f"{FED}sources.py", f"{FED}data.py"),
    "federation/packing": (f"{FED}wire.py", f"{FED}strategy.py"),
    "federation/patience": (f"{FED}patience.py",),
    "federation/plots": (f"{FED}deployment.py",),
    "federation/report": (f"{FED}deployment.py", f"{FED}strategy.py", f"{FED}defence.py"),
    "federation/settings": (f"{FED}deployment.py",),
    "federation/sources": (f"{FED}sources.py", f"{FED}data.py"),
    "federation/suspects": (f"{FED}defence.py", f"{FED}strategy.py"),
    "federation/synthetic": (f"{FED}parts.py", f"{FED}agreement.py"),
    "federation/wire": (f"{FED}wire.py",),
}  # fmt: skip


def tests_for(file: str) -> tuple[str, ...]:
    """Return pytest's arguments for a change of `file`, such as ``src/psofed/theory/lms.py``."""
    place = file.removeprefix("src/psofed/")
    tests = TESTS[max((begin for begin in TESTS if place.startswith(begin)), key=len)]
    if "-k" in tests or place.startswith("federation/"):
        return tests
    module = "psofed." + place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    pages = (PAGES,) if place.startswith("parts/") else ()
    return f"{DOCUMENTS}::test_docstring_examples_hold[{module}]", *pages, *tests

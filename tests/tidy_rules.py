"""The house rules that a program can check, each a small function of one source file.

In: a `Source` (path, text, syntax tree). Out: what is wrong in it, as (line, sentence). Which rule
looks at which folder is the table `RULES` at the end. Rules that a tool checks already are not
repeated: formatting and line length (ruff), layers (import-linter), types (mypy).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from orbitmq.wire.record import FIELDS

# ---- the tables ----------------------------------------------------------------------------------

# Where in src/orbitmq a module of the standard library (or uvloop) may be imported. What is not
# named here may be imported everywhere. A place that ends in "/" is a folder.
WORLD = ("world/",)
ALLOWED_PLACES: Mapping[str, tuple[str, ...]] = {
    # the operating system: files, sockets, clocks, randomness
    **dict.fromkeys(("time", "random", "secrets", "uuid"), WORLD),
    **dict.fromkeys(("socket", "ssl", "select", "selectors", "socketserver"), WORLD),
    **dict.fromkeys(("fcntl", "mmap", "shutil", "tempfile", "glob"), WORLD),
    **dict.fromkeys(("subprocess", "multiprocessing", "threading"), WORLD),
    # there for the type of its futures only
    "concurrent": (*WORLD, "blocking/", "spark/", "client/producer.py", "client/sending.py"),
    "signal": ("world/", "cli/"),
    # the event loop: the layers that wait
    "asyncio": (
        *(
            "world/http.py",
            "world/net.py",
            "world/processes.py",
            "world/threads.py",
            "world/loop_thread.py",
            "world/workers.py",
        ),
        *("net/", "broker/", "namesrv/", "client/", "cli/", "testing/", "app/", "blocking/"),
        "spark/",  # pulls and sends of a worker, on the loop of the synchronous clients
    ),
    "uvloop": ("world/net.py",),
    # wire, core and store return values; the caller reports
    "logging": ("world/net.py", "net/", "broker/", "namesrv/", "client/", "cli/", "app/", "spark/"),
    # programs on the wire: never
    **dict.fromkeys(("pickle", "marshal", "shelve", "dbm"), ()),
}
# `os` is more than files: these of its names are harmless everywhere.
OS_NAMES_EVERYWHERE = {"PathLike", "environ", "fspath", "getpid", "linesep", "sep"}
# Methods of `pathlib.Path` that touch the disk and whose names nothing of ours would have.
PATH_METHODS = {
    *("chmod", "hardlink_to", "is_dir", "is_file", "iterdir", "lstat", "mkdir"),
    *("read_bytes", "read_text", "rglob", "rmdir", "symlink_to", "unlink"),
    *("write_bytes", "write_text"),
}
# Ways to ask for the time that do not import `time`.
CLOCK_CALLS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
# Calls that run what they are given.
UNSAFE_CALLS = {
    *("eval", "exec", "__import__", "os.system", "os.popen"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
}
BANNED_NAMES = {"util", "utils", "common", "helper", "helpers", "manager", "impl"}

# Calls whose arguments are places in bytes.
_PLACE_CALLS = {"unpack_from", "pack_into", "find", "rfind", "startswith"}
_SEARCH_CALLS = {"find", "rfind", "index", "rindex", "finditer", "search", "flatnonzero"}
RECORD_SEARCH = ("store/record_search.py",)
RECORD_PARSERS = ("store/", "core/", "arrow/", "spark/")
# 4 and 8 are sizes of numbers as well.
_FIELD_POSITIONS = {field.position for field in FIELDS if field.position > 8}

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
PARAMETERS_MAX = 6
NESTING_MAX = 3
HEAD_LINES_MIN, HEAD_LINES_MAX = 3, 15

# Who may look at the properties that mean something to the broker, and hash tags: `core/admit.py`,
# those that write them, and the few that have another question.
ADMIT = "core/admit.py"
TAG_CODES = (ADMIT, "core/tag_codes.py")
RECORD_KEYS = ("core/record_keys.py",)
DECIDED_IN: Mapping[str, tuple[str, ...]] = {
    "CLUSTER": (ADMIT,),
    "WAIT": (ADMIT, "broker/handlers/send_back.py"),
    "DELAY": (
        *(ADMIT, "broker/handlers/send_back.py", "broker/puts.py", "broker/offset_moved.py"),
        *("broker/delay_recovery.py", "store/follow.py"),  # when is it due, which level was it
    ),
    "TRAN_MSG": (ADMIT,),
    **dict.fromkeys(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"), (ADMIT,)),
    "INNER_MULTI_DISPATCH": (ADMIT, "broker/light_queues.py"),
    "INNER_MULTI_QUEUE_OFFSET": ("broker/light_queues.py",),
    "TAGS": (*TAG_CODES, "broker/offset_moved.py", "store/check_index.py"),
    "KEYS": (*RECORD_KEYS, "broker/offset_moved.py"),
    "UNIQ_KEY": (*RECORD_KEYS, "core/admit_batch.py", "broker/delay_copies.py"),
    **dict.fromkeys(("tag_code", "short_tag_code"), TAG_CODES),
}
# Parameters that are tuples without a name, by package. The numbers may only fall.
UNNAMED_TUPLES: Mapping[str, int] = {
    "cli": 1,
    "client": 2,
    "core": 2,
    "namesrv": 1,
    "spark": 3,
    "world": 1,
}

# Files of the tests that may sleep, with the reason.
SLEEPERS: Mapping[str, str] = {
    "tests/foreign/asking.py": "nobody tells of a registration; it looks again until a deadline",
    "tests/foreign/python/compat.py": "a foreign client tells nothing of what does not come",
    "tests/reliability/builds.py": "a disk that is slow on purpose",
    "tests/reliability/load_client.py": "a client tries a broker that was killed again",
    "tests/reliability/processes.py": "another process does not tell when its figures change",
    "tests/spark/sink_task.py": "rows that come slowly, so that a kill meets them",
    "tests/spark/pipeline_kills.py": "a kill comes at any moment of a batch; files tell nothing",
}

# Written in pieces, so that this file keeps its own rules.
_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|root|home)/|\.\./sha" r"red")
_DIRECTIVE = re.compile(r"\b(noqa|type: *ignore|pragma:|mypy:)[^#]*(?:#(?! *(noqa|type:))[^#]*)?")
_REASONED = re.compile(r"\b(noqa: *[A-Z]+\d+(, *[A-Z]+\d+)*|type: *ignore\[[a-z, -]+\])\s*[-#] *\S")

# ---- sources -------------------------------------------------------------------------------------

Finding = tuple[int, str]
Rule = Callable[["Source"], Iterator[Finding]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A text file of the repository; `path` is relative to its root."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def comments(self) -> list[tokenize.TokenInfo]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [token for token in tokens if token.type == tokenize.COMMENT]

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    def lies_in(self, places: tuple[str, ...]) -> bool:
        """Whether this is one of the `places` of src/orbitmq."""
        inside = "/".join(self.path.parts[2:])
        return any(inside.startswith(at) if at.endswith("/") else inside == at for at in places)


def functions(source: Source) -> Iterator[_Function]:
    for node in ast.walk(source.tree):
        if isinstance(node, _Function):
            yield node


def calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    """Every call with the name that is called: `open`, `os.system`, `.read_bytes`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield node, _called_name(node.func)


def _called_name(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value
    last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return f"{last}.{function.attr}"


def imports(source: Source) -> Iterator[tuple[int, str, list[str]]]:
    """Every import as (line, module, names taken from it)."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module, [alias.name for alias in node.names]


# ---- sizes ---------------------------------------------------------------------------------------


def short_functions(source: Source) -> Iterator[Finding]:
    for function in functions(source):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield (
                function.lineno,
                f"{function.name} has {lines} lines; {FUNCTION_LINES_MAX} at most",
            )


def small_files(source: Source) -> Iterator[Finding]:
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        yield FILE_LINES_MAX + 1, f"the file has {lines} lines; {FILE_LINES_MAX} at most"


def few_parameters(source: Source) -> Iterator[Finding]:
    for function in functions(source):
        args = function.args
        named = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
        named += [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]
        count = len(named) - (named[:1] in (["self"], ["cls"]))
        if count > PARAMETERS_MAX:
            yield (
                function.lineno,
                f"{function.name} has {count} parameters; {PARAMETERS_MAX} at most",
            )


_CONTROL = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
    *(ast.Try, ast.TryStar, ast.Match),
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def flat_functions(source: Source) -> Iterator[Finding]:
    for function in functions(source):
        for line, depth in _nestings(function, 0):
            if depth == NESTING_MAX + 1:
                yield line, f"{function.name} nests {depth} levels deep; {NESTING_MAX} at most"


def _nestings(node: ast.AST, depth: int) -> Iterator[tuple[int, int]]:
    """Every control statement inside `node` as (line, depth); inner functions count by themselves.

    An `elif` stands in the column of its `if` and adds no level.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            continue
        is_elif = (
            isinstance(node, ast.If)
            and isinstance(child, ast.If)
            and node.orelse == [child]
            and child.col_offset == node.col_offset
        )
        if isinstance(child, _CONTROL) and not is_elif:
            yield child.lineno, depth + 1
            yield from _nestings(child, depth + 1)
        else:
            yield from _nestings(child, depth)


# ---- what may be used where ----------------------------------------------------------------------


def modules_in_their_place(source: Source) -> Iterator[Finding]:
    for line, module, _ in imports(source):
        places = ALLOWED_PLACES.get(module.partition(".")[0])
        if places is not None and not source.lies_in(places):
            yield line, f"{module} may be imported in {', '.join(places) or 'no module'} only"


def files_through_world(source: Source) -> Iterator[Finding]:
    if source.lies_in(WORLD):
        return
    for line, name in _os_names(source):
        if name not in OS_NAMES_EVERYWHERE:
            yield line, f"os.{name} belongs in world/"
    for call, name in calls(source):
        _, dot, method = name.rpartition(".")
        if name in ("open", "io.open") or (dot and method in PATH_METHODS):
            yield call.lineno, f"{ast.unparse(call.func)}() touches files; that belongs in world/"


def _os_names(source: Source) -> Iterator[tuple[int, str]]:
    """What is used of `os`: in an import from it, or behind `os.`."""
    for line, module, names in imports(source):
        if module in ("os", "os.path"):
            yield from ((line, name) for name in names)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os":
            yield node.lineno, node.attr


def clocks_through_world(source: Source) -> Iterator[Finding]:
    for call, name in calls(source):
        if name in CLOCK_CALLS and not source.lies_in(WORLD):
            yield call.lineno, f"{name}() reads a clock; take world's Clock"


def no_unsafe_calls(source: Source) -> Iterator[Finding]:
    for call, name in calls(source):
        shell = [word.value for word in call.keywords if word.arg == "shell"]
        if name in UNSAFE_CALLS:
            yield call.lineno, f"{name}() runs what it is given"
        if any(not (isinstance(value, ast.Constant) and value.value is False) for value in shell):
            yield call.lineno, f"{name}(shell=...) hands its command to a shell"
    for line, module, names in imports(source):
        for name in names:
            if f"{module}.{name}" in UNSAFE_CALLS:
                yield line, f"{module}.{name} runs what it is given"


def no_assert(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert vanishes with -O; use ensure()"


def print_in_cli_only(source: Source) -> Iterator[Finding]:
    for call, name in calls(source):
        if name == "print" and not source.lies_in(("cli/",)):
            yield call.lineno, "print() is for cli/; return a value or log"


def no_sleep(source: Source) -> Iterator[Finding]:
    if str(source.path) in SLEEPERS:
        return
    for call, name in calls(source):
        if name == "time.sleep":
            yield call.lineno, "time.sleep() in a test; await the event, or list it in SLEEPERS"
    for line, module, names in imports(source):
        if module == "time" and "sleep" in names:
            yield line, "sleep from time in a test; await the event"


def fields_by_name(source: Source) -> Iterator[Finding]:
    """Who parses records takes positions of their fields from FIELD, not from numbers."""
    modules = {module for _, module, _ in imports(source)}
    if "orbitmq.wire.record" not in modules or not source.lies_in(RECORD_PARSERS):
        return
    for node in ast.walk(source.tree):
        for number in _places_of(node):
            if isinstance(number, ast.Constant) and number.value in _FIELD_POSITIONS:
                yield number.lineno, f"{number.value} is where a record's field is: use FIELD"


def records_searched_in_one_place(source: Source) -> Iterator[Finding]:
    """Where the log goes on behind damage is decided in one module: only it looks for magics."""
    if source.lies_in(RECORD_SEARCH):
        return
    for call, name in calls(source):
        is_search = name.split(".")[-1] in _SEARCH_CALLS
        if is_search and any("MAGIC" in ast.unparse(arg) for arg in call.args):
            yield call.lineno, f"{name}() looks for records; ask {RECORD_SEARCH[0]}"


def _places_of(node: ast.AST) -> list[ast.expr | None]:
    """The expressions in a node that say where in some bytes something is."""
    if isinstance(node, ast.Slice):
        return [node.lower, node.upper]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [node.left, node.right]
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).lower().endswith("_at"):
        return [node.value]
    if isinstance(node, ast.Call) and _called_name(node.func).split(".")[-1] in _PLACE_CALLS:
        return list(node.args)
    return []


_STORING = ("broker/", "core/", "store/")
_MARK = re.compile(rf"(?<![A-Z_])({'|'.join(DECIDED_IN)})(\x01|\\u0001)")


def decided_in_one_place(source: Source) -> Iterator[Finding]:
    """What properties mean is found out in one place, whichever way a message comes in."""
    if source.lies_in(_STORING):
        for line, name in sorted(_decided_names(source)):
            places = DECIDED_IN.get(name)
            if places is not None and not source.lies_in(places):
                yield line, f"what {name} means is found out in {', '.join(places)} only"


def _decided_names(source: Source) -> Iterator[tuple[int, str]]:
    """Names that are taken from the modules of properties and tags, and those in literals."""
    aliases, texts = set[str](), set[ast.expr]()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            if node.module in ("orbitmq.wire.properties", "orbitmq.wire.expression"):
                yield from ((node.lineno, alias.name) for alias in node.names)
            aliases |= {alias.asname or "" for alias in node.names if alias.name == "properties"}
        elif isinstance(node, ast.Expr):
            texts.add(node.value)  # a docstring
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in aliases:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and node not in texts:
            value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            for found in _MARK.finditer(value) if isinstance(value, str) else ():
                yield node.lineno, found[1]


def unnamed_tuples(source: Source) -> Iterator[Finding]:
    """Parameters that are several values without a name: a small type says what they are."""
    for function in functions(source):
        args = function.args
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            if arg.annotation is not None and _is_unnamed_tuple(arg.annotation):
                yield function.lineno, f"{function.name}: {arg.arg} is a tuple without a name"


def _is_unnamed_tuple(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "tuple":
        return False
    parts = annotation.slice
    return isinstance(parts, ast.Tuple) and ast.unparse(parts.elts[-1]) != "..."


# ---- heads, names, comments ----------------------------------------------------------------------


def head_says_what_flows(source: Source) -> Iterator[Finding]:
    head = ast.get_docstring(source.tree) or ""
    lines = sum(1 for line in head.splitlines() if line.strip())
    least = 0 if source.path.name in ("__init__.py", "__main__.py") else HEAD_LINES_MIN
    if not least <= lines <= HEAD_LINES_MAX:
        yield 1, f"the head has {lines} lines of text; {HEAD_LINES_MIN} to {HEAD_LINES_MAX} wanted"


def telling_names(source: Source) -> Iterator[Finding]:
    for part in source.path.with_suffix("").parts:
        banned = BANNED_NAMES.intersection(part.lower().split("_"))
        if banned:
            yield 1, f"{part}: a name with {min(banned)} in it does not say what is inside"


def reasons_beside_exceptions(source: Source) -> Iterator[Finding]:
    for comment in source.comments:
        for found in _DIRECTIVE.finditer(comment.string):
            if not _REASONED.match(found[0]):
                shown = found[0].strip()
                yield comment.start[0], f"`{shown}` needs its code and, behind - or #, a reason"


def no_code_in_comments(source: Source) -> Iterator[Finding]:
    for comment in source.comments:
        alone = comment.line[: comment.start[1]].strip() == ""
        if alone and _is_code(comment.string.lstrip("# ")):
            yield comment.start[0], f"commented-out code: {comment.string}"


def _is_code(text: str) -> bool:
    """A guess: one whole statement that nobody would write as a sentence."""
    try:
        body = ast.parse(text + " pass" if text.endswith(":") else text).body
    except SyntaxError:
        return False
    if len(body) != 1:
        return False
    (node,) = body
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await, ast.Yield))
    if isinstance(node, ast.AnnAssign):
        return node.value is not None  # `why: because` is a note
    return True


def nothing_unfinished(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _UNFINISHED.search(line):
            yield number, f"{found[0]}: do it now or open an issue"


def no_machine_paths(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _MACHINE_PATH.search(line):
            yield number, f"{found[0]} exists on one machine only"


# ---- which rule looks where ----------------------------------------------------------------------

PRODUCT = ("src",)
PROGRAMS = ("src", "tools", "benchmarks")
PYTHON = ("src", "tests", "tools", "benchmarks")
EVERY_TEXT = ("",)

RULES: Mapping[Rule, tuple[str, ...]] = {
    short_functions: PROGRAMS,
    small_files: PYTHON,
    few_parameters: PROGRAMS,
    flat_functions: PROGRAMS,
    modules_in_their_place: PRODUCT,
    files_through_world: PRODUCT,
    clocks_through_world: PRODUCT,
    no_unsafe_calls: PYTHON,
    no_assert: PRODUCT,
    print_in_cli_only: PRODUCT,
    no_sleep: ("tests",),
    fields_by_name: PRODUCT,
    decided_in_one_place: PRODUCT,
    records_searched_in_one_place: PRODUCT,
    head_says_what_flows: PRODUCT,
    telling_names: PYTHON,
    reasons_beside_exceptions: PYTHON,
    no_code_in_comments: PYTHON,
    nothing_unfinished: EVERY_TEXT,
    no_machine_paths: EVERY_TEXT,
}


def looks_at(rule: Rule, source: Source) -> bool:
    """Whether `rule` is for this file."""
    places = RULES[rule]
    return places == EVERY_TEXT or (source.is_python and source.path.parts[0] in places)

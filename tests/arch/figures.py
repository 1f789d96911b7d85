"""The figures of the house: ``make figures`` prints them, for this tree or for another checkout."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
PACKAGES = ("harmony_agent", "harmony_fleet", "harmony_nats", "harmony_updater", "scores")
ROOMS = {"harmony_agent": ("engine", "adapters", "kinds"), "harmony_fleet": ("commands",)}
OPENS = re.compile(r"(What|Whether|Which|Where|Who|How|When|Why)\b")
"""A docstring that opens with one of these is a clause. It doesn't say what the thing does."""
WIDTH = 100
Graph = dict[str, set[str]]
"""module -> the modules that it imports."""


@dataclass(frozen=True)
class Source:
    """One file: its text, its tree, and what is counted in it."""

    name: str
    path: Path

    @cached_property
    def lines(self) -> list[str]:
        return self.path.read_text("utf-8").splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse("\n".join(self.lines) + "\n")

    @cached_property
    def functions(self) -> list[int]:
        """The length of each function, with its decorators left out and its docstring counted."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, kinds)]
        return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]

    @cached_property
    def comments(self) -> int:
        tokens = tokenize.generate_tokens(io.StringIO("\n".join(self.lines) + "\n").readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)

    @cached_property
    def texts(self) -> list[ast.Constant]:
        """Texts that stand alone as a statement: docstrings, and those below an attribute."""
        statements = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Expr))
        constants = (node for node in statements if isinstance(node, ast.Constant))
        return [node for node in constants if isinstance(node.value, str)]

    @cached_property
    def docstrings(self) -> list[str]:
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = (ast.get_docstring(node) for node in ast.walk(self.tree) if isinstance(node, kinds))
        return [text for text in found if text is not None]

    @cached_property
    def anys(self) -> int:
        return sum(len(re.findall(r"\bAny\b", line)) for line in self.lines)

    def imports(self, types: bool) -> Iterable[str]:
        """Dotted names that the file imports; ``types``: also those for the type checker alone."""
        skipped: set[ast.AST] = set()
        for node in ast.walk(self.tree):
            typing = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            if isinstance(node, ast.If) and typing and not types:
                skipped.update(inner for statement in node.body for inner in ast.walk(statement))
            if node in skipped:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def read(root: Path, package: str) -> list[Source]:
    """Every file of a package."""

    def name(path: Path) -> str:
        return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")

    return [
        Source(name(path), path)
        for path in sorted((root / package).rglob("*.py"))
        if not {"__pycache__", "tests"} & set(path.parts)
    ]


def graph(sources: Sequence[Source], types: bool = False) -> Graph:
    """The imports among these files; one of a package's own name counts where no module is
    meant.
    """
    names = {source.name for source in sources}
    found: Graph = {name: set() for name in names}
    for source in sources:
        for target in source.imports(types):
            module = target if target in names else target.rpartition(".")[0]
            if module in names and module != source.name:
                found[source.name].add(module)
    return found


def rooms(found: Graph, container: str) -> Graph:
    """The graph of what stands directly in a package: a folder counts as one."""
    prefix = f"{container}."

    def room(name: str) -> str:
        return name.removeprefix(prefix).partition(".")[0] if name.startswith(prefix) else ""

    result: Graph = {room(name): set() for name in found if room(name)}
    for name, targets in found.items():
        if room(name):
            result[room(name)] |= {room(target) for target in targets} - {"", room(name)}
    return result


def circles(found: Graph) -> list[list[str]]:
    """Groups of modules that reach one another."""
    reach: Graph = {}
    for start in found:
        seen: set[str] = set()
        todo = [start]
        while todo:
            fresh = found[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        reach[start] = seen
    looped = [name for name in found if name in reach[name]]
    groups = {frozenset(n for n in looped if n in reach[m] and m in reach[n]) for m in looped}
    return sorted(sorted(group) for group in groups)


def levels(found: Graph) -> int:
    """The longest chain of imports; the members of a circle stand on one level."""
    group = {name: min(circle) for circle in circles(found) for name in circle}
    folded: Graph = {}
    for name, targets in found.items():
        one = group.get(name, name)
        folded.setdefault(one, set()).update({group.get(t, t) for t in targets} - {one})
    height: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in height:
            height[name] = 1 + max((of(target) for target in folded[name]), default=0)
        return height[name]

    return max((of(name) for name in folded), default=0)


def spread(numbers: Sequence[int]) -> str:
    """``median/p90/max``."""
    ordered = sorted(numbers)
    if not ordered:
        return "-"
    return f"{ordered[len(ordered) // 2]}/{ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]}/{ordered[-1]}"


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def row(name: str, package: Sequence[Source], typed: Graph) -> list[str]:
    """The line of a package, or of a folder in it."""
    sources = [source for source in package if f"{source.name}.".startswith(f"{name}.")]
    lines = sum(len(source.lines) for source in sources)
    docs = [text for source in sources for text in source.docstrings]
    texts = [text for source in sources for text in source.texts]
    doc_lines = sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in texts)
    modules = [source.name for source in sources if source.path.name != "__init__.py"]
    importers = [typed[source.name] for source in package if source.path.name != "__init__.py"]
    lonely = [module for module in modules if sum(module in targets for targets in importers) == 1]
    wide = sum(len(line) > WIDTH for source in sources for line in source.lines)
    inner = rooms(typed, name)
    return [
        name,
        str(len(modules)),
        f"{lines:,}",
        spread([len(source.lines) for source in sources if source.path.name != "__init__.py"]),
        spread([length for source in sources for length in source.functions]),
        percent(sum(source.comments for source in sources), lines),
        percent(doc_lines, lines),
        str(sum(source.anys for source in sources)),
        percent(len(lonely), len(modules)),
        percent(sum(OPENS.match(text) is not None for text in docs), len(docs)),
        percent(wide, lines),
        f"{levels(inner)}/{sum(map(len, inner.values()))}",
    ]


TITLES = (
    "",
    "files",
    "lines",
    "file median/p90/max",
    "function median/p90/max",
    "comments",
    "docstrings",
    "Any",
    "one importer",
    "What/Whether/…",
    f"over {WIDTH}",
    "levels/arrows",
)


def table(root: Path) -> str:
    """The figures of all packages, as Markdown; the circles below."""
    every = {package: read(root, package) for package in PACKAGES}
    whole = graph([source for sources in every.values() for source in sources])
    typed = graph([source for sources in every.values() for source in sources], types=True)
    rows = []
    for package, sources in every.items():
        rooms_of = [f"{package}.{room}" for room in ROOMS.get(package, ())]
        rows += [row(name, sources, typed) for name in (package, *rooms_of)]
    heads = [TITLES, ["---"] * len(TITLES), *rows]
    said = ["| " + " | ".join(cells) + " |" for cells in heads]
    for title, found in (
        ("circles of imports", whole),
        ("circles, imports for types included", typed),
    ):
        said += ["", f"{title}: {len(circles(found))}"]
        said += [f"- {' <-> '.join(circle)}" for circle in circles(found)]
    return "\n".join(said)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))

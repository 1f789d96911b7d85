"""Prints what the root updater is made of: its lines, what it imports, and every command that it can ever run.

Reads the source as text but for the table of commands, which it imports. Exits 1 when the updater is longer than it may
be, imports more than the standard library, pydantic and itself, or could start a process in another place.
"""

import ast
import shlex
import sys
from pathlib import Path

LIMIT = 800
PACKAGE = Path(__file__).resolve().parent.parent / "harmony_updater"
STARTERS = {"Popen", "run", "call", "check_call", "check_output", "system", "popen", "fork", "posix_spawn", "execv"}


def imported(tree: ast.Module) -> set[str]:
    """The modules that a file imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def starters(tree: ast.Module) -> list[int]:
    """The lines that start a process."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"subprocess", "os"}
        and node.func.attr in STARTERS
    ]


def main() -> int:
    """Print it all; 1 when something is not as it has to be."""
    sys.path.insert(0, str(PACKAGE.parent))
    from harmony_updater.apt import COMMANDS, ENVIRONMENT  # noqa: PLC0415

    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.glob("*.py"))}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    modules = sorted(set().union(*map(imported, trees.values())))
    allowed = {*sys.stdlib_module_names, "pydantic", "harmony_updater"}
    foreign = [name for name in modules if name.split(".")[0] not in allowed]
    places = [f"{path.name}:{line}" for path, tree in trees.items() for line in starters(tree)]

    said = [f"{count:5} {path.name}" for path, count in lines.items()]
    said += [f"{sum(lines.values()):5} lines in all, of at most {LIMIT}", ""]
    said += ["imports: " + ", ".join(modules), ""]
    said += [f"processes are started in: {', '.join(places)}, in this environment:"]
    said += [f"  {key}={value}" for key, value in ENVIRONMENT.items()]
    said += ["", "commands (`spawn` is given the id of an attempt):"]
    said += [f"  {name}: {shlex.join(command.split())}" for name, command in COMMANDS.items()]
    wrong = [f"cannot accept an import of {name}" for name in foreign]
    wrong += [f"cannot accept {sum(lines.values())} lines"] if sum(lines.values()) > LIMIT else []
    wrong += [f"cannot accept processes started in {places}"] if len(places) != 1 else []
    sys.stdout.write("\n".join([*said, *wrong, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

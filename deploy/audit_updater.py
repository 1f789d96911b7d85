"""Print what the root updater is made of: its files, what it imports, and every command that it can
ever run.

Reads the source as text but for the table of commands, which it imports. Exits 1 when the updater
imports a module or runs a program that isn't named here, starts a process in another place, or has
a line of more than 100 columns.
"""

import ast
import shlex
import sys
from pathlib import Path

COLUMNS = 100
PACKAGE = Path(__file__).resolve().parent.parent / "harmony_updater"
PROGRAMS = {
    *(
        "/usr/bin/apt-cache",
        "/usr/bin/apt-config",
        "/usr/bin/apt-get",
        "/usr/bin/dpkg",
        "/usr/bin/dpkg-query",
    ),
    *("/usr/bin/env", "/usr/bin/systemctl", "/usr/bin/systemd-run", "/usr/bin/timedatectl"),
}
MODULES = {
    *(
        "argparse",
        "collections",
        "contextlib",
        "datetime",
        "fcntl",
        "grp",
        "importlib",
        "json",
        "logging",
        "os",
        "re",
        "shlex",
    ),
    *("shutil", "socket", "struct", "subprocess", "sys", "threading", "time", "tomllib", "typing"),
    *("harmony_updater", "pydantic"),
}
STARTERS = {
    "Popen",
    "run",
    "call",
    "check_call",
    "check_output",
    "system",
    "popen",
    "fork",
    "posix_spawn",
    "execv",
}


def imported(tree: ast.Module) -> set[str]:
    """Find the modules that a file imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def starters(tree: ast.Module) -> list[int]:
    """Find the lines that start a process."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"subprocess", "os"}
        and (node.func.attr in STARTERS or node.func.attr.startswith(("exec", "spawn")))
    ]


def programs(commands: dict[str, str]) -> set[str]:
    """Find the programs in the commands: the first word, and what env and systemd-run are given to
    run.
    """
    words = (word for command in commands.values() for word in shlex.split(command))
    return {
        word for word in words if word.startswith(("/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"))
    }


def main() -> int:
    """Print it all; 1 when something is not as it has to be."""
    sys.path.insert(0, str(PACKAGE.parent))
    from harmony_updater.host import COMMANDS, ENVIRONMENT  # noqa: PLC0415

    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = sorted(set().union(*map(imported, trees.values())))
    places = [f"{path.name}:{line}" for path, tree in trees.items() for line in starters(tree)]
    run = programs(COMMANDS) - {sys.executable}

    said = [f"{len(text.splitlines()):5} {path.name}" for path, text in texts.items()]
    said += ["", "imports: " + ", ".join(modules), ""]
    said += [f"processes are started in: {', '.join(places)}, in this environment:"]
    said += [f"  {key}={value}" for key, value in ENVIRONMENT.items()]
    said += ["", "programs: " + ", ".join(sorted(run)), ""]
    said += ["commands (`spawn` is given the id of an attempt):"]
    said += [f"  {name}: {shlex.join(shlex.split(command))}" for name, command in COMMANDS.items()]
    for name in ("apt.conf", "bare.conf"):
        said += [
            "",
            f"{name}:",
            *(f"  {line}" for line in (PACKAGE / name).read_text(encoding="utf-8").splitlines()),
        ]
    wrong = [
        f"cannot accept an import of {name}"
        for name in modules
        if name.split(".")[0] not in MODULES
    ]
    wrong += [f"cannot accept the program {name}" for name in sorted(run - PROGRAMS)]
    wrong += [f"cannot accept processes started in {places}"] if len(places) != 1 else []
    wrong += [
        f"cannot accept the length of {path.name}:{number}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS
    ]
    sys.stdout.write("\n".join([*said, *wrong, ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

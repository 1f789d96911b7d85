"""An author's files in every form, by every command that takes one; and hints that are commands, each
followed.
"""

from __future__ import annotations

import shlex

import pytest

from tests.integration.operator import Operator, Ran
from tests.integration.simulated import SimulatedDevice

LIST = """
- kind: File
  name: page
  path: /srv/page
  content: {$text: "on ${device} at ${labels.site}, port ${port}"}
- kind: Container
  name: web
  image: busybox
  ports: [{host_port: {$var: port}, container_port: 80}]
"""


@pytest.fixture
def web(operator: Operator) -> str:
    path = operator.folder / "web.yaml"
    path.write_text(LIST)
    return str(path)


def command_of(ran: Ran, **values: str) -> list[str]:
    """The command of a hint, with what it leaves open filled in."""
    (hint,) = [line for line in ran.err.splitlines() if line.startswith("hint:")]
    words = hint[hint.index("harmony ") :] if "harmony " in hint else hint[hint.index("--") :]
    for name, value in values.items():
        words = words.replace(name, value)
    return [word for word in shlex.split(words) if word != "harmony"]


async def test_a_list_with_variables_is_applied_as_a_roster_takes_it(
    operator: Operator, device: SimulatedDevice, web: str
) -> None:
    missing = await operator("apply", web, "-d", device.name)
    assert missing.code == 2
    assert "there is no variable port" in missing.err
    given = command_of(missing, VALUE="8080")
    assert given == ["--variable", "port=8080"]
    assert (await operator("apply", web, "-d", device.name, *given, "--dry-run")).code == 0
    assert (await operator("apply", web, "-d", device.name, *given)).code == 0
    wire = await device.desired("web")
    assert wire is not None
    page, pod = wire.wire()["scores"]
    assert page["content"] == f"on {device.name} at {device.name}, port 8080"
    assert pod["ports"][0]["host_port"] == 8080
    assert (await operator("diff", web, "-d", device.name, *given)).code == 0


async def test_a_hint_about_a_roster_s_variables_works(operator: Operator, web: str) -> None:
    assert (await operator("fleet", "init")).code == 0
    added = await operator(
        *("fleet", "device", "add", "pi-01", "--class", "web", "--variable", "port=1"),
        *("--generation", "1"),
    )
    assert added.code == 0
    deploy = ("fleet", "deployment", "add", "web", "--file", web, "--generation", "2")
    refused = await operator(*deploy)
    assert refused.code == 2
    assert "there is no variable labels.site" in refused.err
    followed = await operator(*command_of(refused, VALUE="home", N="2"))
    assert followed.code == 0, followed.err
    assert (await operator(*deploy[:-1], "3")).code == 0


async def test_a_roster_s_author_sees_the_line_too(operator: Operator, web: str) -> None:
    with open(web, "w") as file:
        file.write(LIST.replace("path:", "pth:"))
    await operator("fleet", "init")
    ran = await operator("fleet", "deployment", "add", "web", "--file", web, "--generation", "1")
    assert ran.code == 2
    assert "line 4, column 3: scores[0].pth (File/page): there is no such field" in ran.err
    schema = await operator(*command_of(ran))
    assert schema.code == 0
    assert "path" in schema.json["properties"]

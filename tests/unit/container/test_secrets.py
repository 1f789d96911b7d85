"""No value of an environment variable leaves in an error, whatever fails and whatever podman says
(row 18).
"""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from harmony_agent.core.errors import Transient
from tests.unit.container.bench import IMAGE, Bench, web

PASSWORD = "hunter2-correct-horse"
FILED = "filed-battery-staple"
SPEC: dict[str, Any] = {
    "env": {"DB_PASSWORD": PASSWORD},
    "env_files": ["/srv/secrets"],
    "init_containers": [{"name": "a", "env": {"INIT_PASSWORD": PASSWORD}}],
}


def everything(error: BaseException | None) -> str:
    """All that a log could print of an error and of what it is chained to."""
    text = ""
    while error is not None:
        text += "".join(traceback.format_exception(error)) + repr(error) + str(error.args)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


@pytest.mark.parametrize("value", [PASSWORD, FILED])
@pytest.mark.parametrize(
    "operation", ["pull", "create", "start", "inspect", "stop", "remove", "restart", "rename"]
)
async def test_each_failure_in_turn(operation: str, value: str) -> None:
    bench = Bench()
    bench.env_files.files["/srv/secrets"] = f"TOKEN={FILED}\n".encode()
    bench.want(web(**SPEC))
    await bench.once()
    if "web.init-a" in [one.name for one in bench.containers.made.values()]:
        bench.containers.exits("web.init-a", 0)
    if operation not in ("create", "start", "pull"):
        await bench.settle()
    made = bench.containers.named("web")
    match operation:
        case "pull":
            bench.want(web(**SPEC, pull="always", hostname="h"))
        case "create":
            bench.want(web(**SPEC, hostname="h"))
        case "stop" | "remove":
            bench.store.unset("web")
        case "restart":
            bench.want(web(**SPEC), restart_token="2")
        case "rename":
            assert made is not None
            made.name = "elsewhere"
    bench.containers.refuse(operation, f'bad env "{value}" in spec', times=9)
    if operation == "stop":
        bench.containers.refuse("remove", f"still {value}")
    if operation == "restart":
        bench.want(web(**SPEC), restart_token="3")
        bench.store.put(bench.store.record("web"))  # type: ignore[arg-type]
        await bench.store.note("web", {**bench.facts(), "token": "2"})
    with pytest.raises(Transient) as caught:
        await bench.once()
    shown = everything(caught.value)
    assert PASSWORD not in shown
    assert FILED not in shown
    assert PASSWORD not in str(bench.store.noted)
    assert FILED not in str(bench.store.noted)


async def test_values_stay_out_of_what_is_shown_of_specs_plans_and_statuses() -> None:
    bench = Bench()
    bench.env_files.files["/srv/secrets"] = f"TOKEN={FILED}\n".encode()
    spec = web(**SPEC)
    bench.want(spec)
    shown: list[str] = [repr(spec), repr(spec.init_containers)]
    result = await bench.once(before=lambda action: shown.append(repr(action)))
    observed = await bench.kind.observe("web")
    shown += [
        repr(result),
        repr(observed),
        repr(bench.kind.detail(bench.store.record("web"), observed)),
        repr(bench.store.record("web")),
    ]
    assert PASSWORD not in "".join(shown)
    assert FILED not in "".join(shown)


async def test_the_words_of_a_refusal_without_a_value_are_kept() -> None:
    bench = Bench()
    bench.containers.refuse("create", "no space left on device")
    bench.want(web(env={"DB_PASSWORD": PASSWORD}))
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert str(caught.value) == "cannot create web: no space left on device"
    assert caught.value.reason == "NoSpace"
    assert IMAGE in bench.containers.images

"""The protocol's official Python SDK as a client: run, sessions, progress, cancellation, files and new artifacts.

COFFERDAM_SERVE names the server's program. With COFFERDAM_MCP_PLOT=1 a virtual environment with matplotlib is made and used
as an environment.
"""

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

SERVE = os.environ["COFFERDAM_SERVE"]


def drive(home: pathlib.Path, act, serve="{}"):
    """Runs `act` with a client of a server with that home, and returns its result."""

    async def session():
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        server = StdioServerParameters(command=SERVE, args=[serve], env=variables, cwd=str(home))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            return await asyncio.wait_for(act(client), 120)

    return asyncio.run(session())


def run(client, env, code, **arguments):
    return client.call_tool("run", {"env": env, "code": code, **arguments})


def artifact(home: pathlib.Path, name: str, program: str) -> pathlib.Path:
    directory = home / ".config/cofferdam/environments" / name
    (directory / "bin").mkdir(parents=True)
    (directory / "bin/run").write_text(program)
    (directory / "bin/run").chmod(0o755)
    (directory / "metadata.json").write_text(json.dumps({"name": name, "timeout_seconds": 60}))
    return directory


def test_run_answers_text_and_data_that_the_schema_allows(tmp_path):
    async def act(client):
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == ["run"]
        # The SDK checks the data against the tool's schema.
        good = await run(client, "python", "print(6*7)")
        bad = await run(client, "python", "raise SystemExit(3)")
        return good, bad

    good, bad = drive(tmp_path, act)
    assert (good.content[0].text, good.is_error, good.structured_content["exit_code"]) == ("42\n", False, 0)
    assert (bad.is_error, bad.structured_content["exit_code"]) == (True, 3)


def test_an_unknown_environment_is_an_error_with_the_names(tmp_path):
    async def act(client):
        with pytest.raises(MCPError) as error:
            await run(client, "nothing", "x")
        return error.value.error

    error = drive(tmp_path, act)
    assert error.code == -32602
    assert "python" in error.message and "shell" in error.message


def test_a_session_keeps_its_state(tmp_path):
    async def act(client):
        await run(client, "python", "x = 41", session="s")
        return await run(client, "python", "print(x + 1)", session="s")

    assert drive(tmp_path, act).content[0].text == "42\n"


def test_progress_reports_output_as_it_arrives(tmp_path):
    told = []

    async def heard(progress, total, message):
        told.append((progress, message))

    async def act(client):
        code = "echo one; sleep 0.4; echo two"
        return await client.call_tool("run", {"env": "shell", "code": code}, progress_callback=heard)

    assert drive(tmp_path, act).content[0].text == "one\ntwo\n"
    assert "".join(message for _, message in told) == "one\ntwo\n"
    assert [progress for progress, _ in told] == sorted({progress for progress, _ in told})


def test_a_cancelled_call_ends_its_run(tmp_path):
    def running():
        return b"7751.5" in b"".join(
            path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()
        )

    def seen():
        try:
            return running()
        except (FileNotFoundError, ProcessLookupError):
            return True

    async def act(client):
        task = asyncio.create_task(run(client, "shell", "sleep 7751.5"))
        while not seen():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(400):
            if not seen():
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("the run goes on")
        return await run(client, "shell", "echo still here")

    assert drive(tmp_path, act).content[0].text == "still here\n"


def test_new_artifact_is_used_by_the_next_call(tmp_path):
    async def act(client):
        artifact(tmp_path, "mine", "#!/bin/sh\nexec sh -s\n")
        return await run(client, "mine", "echo works")

    assert drive(tmp_path, act).content[0].text == "works\n"


def test_a_plot_of_a_package_comes_back_as_an_image(tmp_path):
    if os.environ.get("COFFERDAM_MCP_PLOT") != "1":
        pytest.skip("COFFERDAM_MCP_PLOT=1 installs matplotlib")
    directory = artifact(tmp_path, "plots", "")
    venv = directory / "venv"
    base = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    subprocess.run([base, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "matplotlib==3.10.*"], check=True)
    # The code is passed on standard input, and runs in a home of its own.
    program = f"#!/bin/sh\nexec {venv}/bin/python -\n"
    (directory / "bin/run").write_text(program)
    code = (
        "import matplotlib; matplotlib.use('Agg')\n"
        "import matplotlib.pyplot as p\n"
        "p.plot([1, 4, 9]); p.savefig('/workspace/output/plot.png')\n"
    )

    result = drive(tmp_path, lambda client: run(client, "plots", code))
    assert not result.is_error, result.content
    image = next(block for block in result.content if block.type == "image")
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data).startswith(b"\x89PNG\r\n\x1a\n")


@contextlib.contextmanager
def serving(home: pathlib.Path):
    """The address of a server over HTTP with that home."""
    token = "0123456789abcdef" * 2
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(home), "COFFERDAM_MCP_TOKEN": token}
    serve = json.dumps({"http": "127.0.0.1:0"})
    child = subprocess.Popen([SERVE, serve], env=variables, cwd=home, stderr=subprocess.PIPE, text=True)
    try:
        for line in child.stderr:
            found = re.search(r"http://\S+/mcp", line)
            if found:
                break
        else:
            pytest.fail("the server does not listen")
        threading.Thread(target=child.stderr.read, daemon=True).start()
        yield found.group(), {"Authorization": f"Bearer {token}"}
    finally:
        child.kill()
        child.wait()


def drive_http(home, mode, act):
    """Runs `act` with a client of a server over HTTP, with the SDK's defaults."""

    async def session(address, headers):
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(address, http_client=http)
            async with Client(transport, mode=mode) as client:
                return await asyncio.wait_for(act(client), 240)

    with serving(home) as (address, headers):
        return asyncio.run(session(address, headers))


ERAS = ["legacy", "auto"]
PICTURE = "import os; os.makedirs('output', exist_ok=True); open('output/a.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(5 << 20))"


async def whole(client, result, name):
    link = next(block for block in result.content if block.type == "resource_link" and block.name == name)
    read = (await client.read_resource(str(link.uri))).contents[0]
    return read.text.encode() if hasattr(read, "text") else base64.b64decode(read.blob)


@pytest.mark.parametrize("mode", ERAS)
def test_large_results_arrive_over_http(tmp_path, mode):
    async def act(client):
        for size in (400_000, 600_000, 1 << 20):
            result = await run(client, "python", f"print('x' * {size - 1})")
            assert len(result.content[0].text) == size and not result.is_error
            assert len(result.structured_content["stdout"]) == size
        result = await run(client, "python", "print('x' * (10 * 1024 * 1024 - 1))")
        assert len(await whole(client, result, "stdout")) == 10 << 20
        result = await run(client, "python", PICTURE)
        picture = next(block for block in result.content if block.type == "image")
        assert len(base64.b64decode(picture.data)) == (5 << 20) + 8

    drive_http(tmp_path, mode, act)


@pytest.mark.parametrize("mode", ERAS)
def test_large_results_behind_progress_arrive_over_http(tmp_path, mode):
    async def act(client):
        async def heard(progress, total, message):
            pass

        async def call(code):
            return await client.call_tool("run", {"env": "python", "code": code}, progress_callback=heard)

        assert len((await call("print('x' * 299999)")).content[0].text) == 300_000
        result = await call("print('x' * (10 * 1024 * 1024 - 1))")
        assert len(await whole(client, result, "stdout")) == 10 << 20
        result = await call(PICTURE)
        assert len(await whole(client, result, "a.png")) == (5 << 20) + 8

    drive_http(tmp_path, mode, act)


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_that_leaves_ends_as_it_should(tmp_path, mode, caplog):
    async def act(client):
        await run(client, "python", "x = 1", session="new")

    drive_http(tmp_path, mode, act)
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []

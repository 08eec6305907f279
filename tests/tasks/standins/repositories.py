"""example/project.git with one commit, over https and, with a key, over ssh. It takes pushes."""

import gzip
import os
import shutil
import subprocess

from fixtures import call, write

ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}


def start(base):
    from services import Missing

    if shutil.which("git") is None:
        raise Missing("git is missing")
    root = f"{base}/git"
    repository(f"{root}/example/project.git", f"{base}/work")
    return lambda request: answer(request, root)


def repository(bare, work):
    git = lambda *words: call("git", *words, env=ENVIRONMENT)
    git("init", "-q", "-b", "main", work)
    write(f"{work}/README", "A project.\n")
    git("-C", work, "add", "README")
    git("-C", work, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "first")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "config", "http.receivepack", "true")


def answer(request, root):
    """Has git's own CGI program answer."""
    body = gzip.decompress(request.body) if request.headers.get("Content-Encoding") == "gzip" else request.body
    variables = {
        **ENVIRONMENT, "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": request.path, "QUERY_STRING": request.query,
        "REQUEST_METHOD": request.method, "CONTENT_TYPE": request.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "192.0.2.2",
    }
    done = subprocess.run(["git", "http-backend"], input=body, env=variables, stdout=subprocess.PIPE)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
    status = int(fields.pop("Status", "200").split()[0])
    return status, fields, content

"""example/project.git with one commit, over https and, with the key of the network, over ssh. It takes pushes."""

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


def start_ssh(base):
    """An SSH server for the same repository, to the user `git` with the key alone."""
    from services import Missing

    for program in ["git", "dropbear", "dropbearkey", "ssh-keygen"]:
        if shutil.which(program) is None:
            raise Missing(f"{program} is missing")
    account, key, command = f"{base}/account", f"{base}/deploy_key", f"{base}/git-only"
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    write(command, f'#!/bin/sh\neval "set -- $SSH_ORIGINAL_COMMAND"\ncase $1 in git-*) exec git "${{1#git-}}" "{base}/git$2";; esac\nexit 1\n', 0o755)
    with open(f"{key}.pub") as public:
        write(f"{account}/.ssh/authorized_keys", f'command="{command}" {public.read()}', 0o600)
    os.chmod(account, 0o700)
    os.chmod(f"{account}/.ssh", 0o700)
    call("dropbearkey", "-t", "ed25519", "-f", f"{base}/host_key")
    # The server's own list of accounts, in its own mount namespace.
    users = write(f"{base}/passwd", f"root:x:0:0::/:/bin/sh\ngit:x:0:0::{account}:/bin/sh\n")
    call("mount", "--bind", users, "/etc/passwd")
    subprocess.Popen(["dropbear", "-F", "-E", "-r", f"{base}/host_key", "-p", "22", "-s", "-j", "-k"], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


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

# Makes a virtual environment in the directory of the first argument, and installs the packages of the others into it, from the
# index of the second one; an empty one stands for pip's own.
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.parse

tree, index, packages = sys.argv[1], sys.argv[2], sys.argv[3:]
venv, temporary = tree + "/venv", tree + "/tmp"
python = venv + "/bin/python3"
os.makedirs(temporary)


def run(*command):
    code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        sys.exit(code if code > 0 else 1)


def pip_knows_other_pythons():
    if importlib.util.find_spec("pip") is None:
        return False
    import pip

    return tuple(int(part) for part in pip.__version__.split(".")[:2] if part.isdigit()) >= (22, 3)


if pip_knows_other_pythons():
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = [sys.executable, "-m", "pip", "--python", python]
elif importlib.util.find_spec("ensurepip") is not None:
    run(sys.executable, "-m", "venv", venv)
    pip = [python, "-m", "pip"]
else:
    sys.exit("ERROR: this Python has neither pip 22.3 nor ensurepip: apt-get install python3-pip, or python3-venv")
options = ["--no-cache-dir", "--no-input", "--no-warn-script-location", "--disable-pip-version-check", "--quiet"]
if index:
    options += ["--index-url", index]
if index.startswith("http:"):
    options += ["--trusted-host", urllib.parse.urlsplit(index).netloc]
run(*pip, "install", *options, "--report", tree + "/report.json", *packages)
shutil.rmtree(temporary, ignore_errors=True)

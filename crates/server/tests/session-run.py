#!/usr/bin/env python3
# The program of an artifact's sessions: frames of the documented protocol on standard input and output, code for bash.
import json, struct, subprocess, sys

def send(reply):
    body = json.dumps(reply).encode()
    sys.stdout.buffer.write(struct.pack(">I", len(body)) + body)
    sys.stdout.buffer.flush()

send({"type": "ready"})
while True:
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        break
    request = json.loads(sys.stdin.buffer.read(struct.unpack(">I", head)[0]))
    if request["type"] == "ping":
        send({"type": "pong"})
    elif request["type"] == "shutdown":
        break
    else:
        done = subprocess.run(["bash", "-s"], input=request["code"], capture_output=True, text=True)
        send({"type": "result", "id": request["id"], "stdout": done.stdout, "stderr": done.stderr, "exit_code": done.returncode})

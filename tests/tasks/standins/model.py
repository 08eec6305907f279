"""The APIs of models: of Anthropic, OpenAI and Google. The model does what each user wants in the same way:

To `Edit the notes and run the tests` it asks for an edit of `notes.txt` to `edited`, the command `make test` and a read
of `~/.ssh/id_ed25519`, one call of a tool after the other, with the tools that it is offered. Then, and to all else, it
answers `finished`."""

import json

TASK, FINISHED = "Edit the notes and run the tests", "finished"
# The keys of the callers in tests/tasks.
KEYS = {"sk-test", "test"}
USAGE = {"input_tokens": 10, "output_tokens": 10}


def start(_base):
    return answer


def answer(request):
    try:
        asked = json.loads(request.body or b"{}")
    except ValueError:
        return reply({"error": {"type": "invalid_request_error", "message": "this is no JSON"}}, 400)
    key = request.headers.get("x-api-key") or request.headers.get("x-goog-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not key and request.query.startswith("key="):
        key = request.query.removeprefix("key=").split("&")[0]
    path = request.path.removeprefix("/v1").rstrip("/")
    if request.method == "POST" and key not in KEYS:
        return reply({"type": "error", "error": {"type": "authentication_error", "message": "this is no valid key"}}, 401)
    if request.host == "api.anthropic.com" and request.method == "POST":
        if path == "/messages":
            return anthropic(asked)
        if path == "/messages/count_tokens":
            return reply({"input_tokens": 10})
    if request.headers.get("Upgrade"):
        # No WebSockets: clients turn to plain requests.
        return reply({"error": {"type": "invalid_request_error", "message": "not by WebSocket"}}, 426)
    if request.host == "api.openai.com" and request.method == "POST":
        if path == "/responses":
            return responses(asked)
        if path == "/chat/completions":
            return completions(asked)
    if request.host == "generativelanguage.googleapis.com" and request.method == "POST":
        return google(request, asked)
    return reply({"error": {"type": "not_found_error", "message": "there is no such thing"}}, 404)


def reply(value, status=200):
    return status, {"Content-Type": "application/json"}, json.dumps(value)


def events(values, named=False):
    """A stream of events, whole."""
    lines = [(f"event: {value['type']}\n" if named else "") + f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n" for value in values]
    return 200, {"Content-Type": "text/event-stream"}, "".join(lines)


def shell(names):
    """The arguments of a shell's command, for the first known tool of a shell."""
    known = {
        "Bash": lambda line: {"command": line, "description": "A step"},
        "exec_command": lambda line: {"cmd": line},
        "shell_command": lambda line: {"command": line},
        "shell": lambda line: {"command": ["bash", "-c", line]},
        # A program that calls tools.
        "exec": lambda line: f"const done = await tools.exec_command({json.dumps({'cmd': line})}); text(JSON.stringify(done))",
        "bash": lambda line: {"command": line, "description": "A step"},
    }
    for name, arguments in known.items():
        if name in names:
            return lambda line: (name, arguments(line))
    return None


def steps(names):
    """The calls of tools, in their order."""
    run = shell(names)
    edit = [run("echo edited >notes.txt")] if run else []
    key = [run("cat ~/.ssh/id_ed25519")] if run else []
    if {"Read", "Edit"} <= names:
        old = {"old_string": "original", "new_string": "edited"}
        edit = [("Read", {"file_path": "notes.txt"}), ("Edit", {"file_path": "notes.txt", **old})]
        key = [("Read", {"file_path": "~/.ssh/id_ed25519"})]
    return edit + ([run("make test")] if run else []) + key


def step(asked, names, done):
    """The next call of a tool; none where the model has finished."""
    todo = steps(names) if TASK in asked else []
    return todo[done] if done < len(todo) else None


def anthropic(asked):
    messages = asked.get("messages", [])
    blocks = [block for message in messages if isinstance(message.get("content"), list) for block in message["content"]]
    done = sum(block.get("type") == "tool_result" for block in blocks)
    call = step(json.dumps(messages), {tool.get("name") for tool in asked.get("tools", [])}, done)
    if call:
        block, reason = {"type": "tool_use", "id": f"toolu_{done}", "name": call[0], "input": call[1]}, "tool_use"
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, reason = {"type": "text", "text": FINISHED}, "end_turn"
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": FINISHED}
    message = {"id": f"msg_{done}", "type": "message", "role": "assistant", "model": asked.get("model"), "stop_sequence": None, "usage": USAGE}
    if not asked.get("stream"):
        return reply({**message, "content": [block], "stop_reason": reason})
    return events([
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": USAGE},
        {"type": "message_stop"},
    ], named=True)


def responses(asked):
    given = asked.get("input", [])
    given = given if isinstance(given, list) else [{"type": "message", "content": given}]
    done = sum(item.get("type") in ("function_call_output", "custom_tool_call_output") for item in given)
    tools = asked.get("tools", []) + [tool for item in given for tool in item.get("tools", [])]
    spaces = {inner.get("name"): tool["name"] for tool in tools if tool.get("type") == "namespace" for inner in tool["tools"]}
    call = step(json.dumps(given), {tool.get("name") for tool in tools} | set(spaces), done)
    if call and isinstance(call[1], str):
        item = {"type": "custom_tool_call", "id": f"ctc_{done}", "call_id": f"call_{done}", "name": call[0], "namespace": spaces.get(call[0]), "input": call[1]}
    elif call:
        item = {"type": "function_call", "id": f"fc_{done}", "call_id": f"call_{done}", "name": call[0], "arguments": json.dumps(call[1])}
    else:
        item = {"type": "message", "id": f"item_{done}", "role": "assistant", "content": [{"type": "output_text", "text": FINISHED, "annotations": []}]}
    item["status"] = "completed"
    usage = {**USAGE, "total_tokens": 20, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": f"resp_{done}", "object": "response", "created_at": 0, "status": "completed", "model": asked.get("model"), "output": [item], "usage": usage}
    if not asked.get("stream"):
        return reply(response)
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    return events([
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ], named=True)


def completions(asked):
    """The older API of OpenAI, without tools."""
    base = {"id": "chat_0", "created": 0, "model": asked.get("model")}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    if not asked.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": FINISHED}, "finish_reason": "stop"}
        return reply({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = lambda delta, reason: {**base, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return events([chunk({"role": "assistant", "content": FINISHED}, None), {**chunk({}, "stop"), "usage": usage}, "[DONE]"])


def google(request, asked):
    if request.path.endswith(":countTokens"):
        return reply({"totalTokens": 10})
    settings = asked.get("generationConfig", {})
    schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
    text = json.dumps(example(schema)) if schema else FINISHED
    part = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}
    value = {"candidates": [part], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}, "modelVersion": "model"}
    return events([value]) if request.path.endswith(":streamGenerateContent") else reply(value)


def example(schema):
    """The plainest value of a JSON schema."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "string")).lower()
    if kind == "object":
        return {name: example(part) for name, part in schema.get("properties", {}).items()}
    return {"array": [], "boolean": False, "number": 1, "integer": 1}.get(kind, FINISHED)

"""A server of tools over standard input and output that needs nothing but Python, so that it is there at once, and has every fault.

    python tiny_server.py [FAULT]

It speaks the older protocol, in which a connection begins with `initialize`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, TextIO

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
TOOLS = [
    "echo",
    "die",
    "slow",
    "huge",
    "flood",
    "fail",
    "ask",
    "environment",
    "children",
    "change",
    "picture",
    "structured",
    "deaf",
]
added: list[str] = []


def say(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


def send(message: dict[str, Any]) -> None:
    say(sys.stdout, json.dumps({"jsonrpc": "2.0", **message}))


def tool(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "die":
            say(sys.stderr, "something terrible has happened")
            os._exit(3)
        case "slow":
            time.sleep(60)
        case "huge":
            return text("x" * 200_000)
        case "flood":
            sys.stdout.write('{"jsonrpc": "2.0", "result": "')
            for _ in range(64):
                sys.stdout.write("y" * (1 << 16))
        case "fail":
            return text("there is no such drink", isError=True)
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "children":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return text(json.dumps([os.getpid(), child.pid]))
        case "change":
            added.append("fresh")
            send({"method": "notifications/tools/list_changed"})
        case "picture":
            content = [
                {"type": "image", "data": "", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "http://a.example/x", "name": "x"},
                {"type": "resource", "resource": {"uri": "a:b", "text": "inside"}},
            ]
            return {"content": content}
        case "structured":
            return {"content": [], "structuredContent": {"price": 72}}
        case "deaf":
            time.sleep(600)
        case _:
            return text(str(arguments.get("text", "")))
    return text("done")


def answer(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message:
        return
    result: dict[str, Any] | None = None
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "tiny", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [tool(name) for name in [*TOOLS, *added]]}
        if FAULT == "schema":
            result["tools"] = [tool("good"), {**tool("bad"), "inputSchema": {"type": "object", "title": "x" * 20_000}}]
        if FAULT == "endless":
            result["nextCursor"] = "more"
    elif method == "tools/call" and params["name"] == "ask":
        send({"id": "q1", "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}})
        result = text("asked")
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments", {}))
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "unknown method"}})
    else:
        send({"id": message["id"], "result": result})


def run() -> None:
    if FAULT == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if FAULT == "hang":
        time.sleep(600)
    if FAULT == "exit":
        say(sys.stderr, "no licence\n" * 500)
        raise SystemExit(1)
    if FAULT == "babble":
        while True:
            say(sys.stdout, "{ nothing of worth")
    if FAULT == "chatty":
        say(sys.stdout, "Listening …\n\n{not json}")
    for line in sys.stdin:
        answer(json.loads(line))
    if FAULT == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    run()

"""How aider, SWE-agent, mini-SWE-agent and OpenHands write a session down: invented, one story each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

from autocode.jobs.testing.sample_story import Call, Exchange, story

__all__ = [
    "aider_history",
    "mini_swe_agent_run",
    "openhands_events",
    "openhands_output",
    "swe_agent_run",
    "write_texts",
]

_CWD: Final = "/home/ada/src/parser"
_MODEL: Final = "claude-3-5-sonnet-20241022"


def aider_history(rng: random.Random, sessions: Iterable[Iterable[Exchange]], day: int = 5) -> bytes:
    """Return a chat history with one session after another, as aider appends them.

    Args:
        rng: where numbers come from.
        sessions: the exchanges of each session.
        day: day of January 2026 on which all of them began, in local time.
    """
    return "".join(
        piece
        for number, exchanges in enumerate(sessions)
        for piece in _aider_session(rng, exchanges, f"2026-01-{day:02} {9 + number % 12:02}:30:05")
    ).encode("utf-8", "surrogatepass")


def write_texts(folder: Path, *, seed: int = 0) -> dict[str, Path]:
    """Write a session or two of each of these formats below *folder*, and return the files by what they show.

    The same arguments give the same bytes on every machine. Not atomic: files are written one by one.

    Args:
        folder: where to write; files that are there already are replaced.
        seed: the seed of everything that is drawn.
    """
    rng = random.Random(f"{seed}/texts")  # noqa: S311 - sample text, reproducible on purpose
    tales = [list(islice(story(rng, _CWD), 2)) for _ in range(2)]
    mini = mini_swe_agent_run(rng, tales[0])
    texts = {
        "aider": ("aider/.aider.chat.history.md", aider_history(rng, tales)),
        "swe-agent": ("swe-agent/run/run.traj", _document(swe_agent_run(rng, tales[0]))),
        "swe-agent-text": (
            "swe-agent/text/text.traj",
            _document(swe_agent_run(rng, tales[1], functions=False)),
        ),
        "mini-swe-agent": ("mini-swe-agent/run.traj.json", _document(mini)),
        "mini-swe-agent-bare": ("mini-swe-agent/bare.traj.json", _document(mini["messages"])),
        "openhands": ("openhands/events.json", _document(openhands_events(rng, tales[0]))),
        "openhands-output": ("openhands/output.jsonl", openhands_output(rng, tales)),
    }
    written = {}
    for name, (relative, data) in texts.items():
        path = written[name] = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return written


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode("ascii")


def _aider_session(rng: random.Random, exchanges: Iterable[Exchange], began: str) -> Iterator[str]:
    yield f"\n# aider chat started at {began}\n\n"
    for line in (
        "/home/ada/.venv/bin/aider --model sonnet",
        "Aider v0.86.1",
        f"Main model: {_MODEL} with diff edit format, prompt cache",
        "Weak model: claude-3-5-haiku-20241022",
        "Git repo: .git with 42 files",
        "Repo-map: using 4096 tokens, auto refresh",
    ):
        yield _printed(line)
    spent = 0.0
    for exchange in exchanges:
        yield _typed(exchange.prompt)
        answer = exchange.thinking + "\n\n#### What I'll do\n\n> as small as possible\n\n"
        answer += "\n".join(_edited(call) for call in exchange.calls if call.name == "Edit")
        yield f"\n{answer}{exchange.reply}\n\n"
        sent, received, cost = rng.randint(900, 90_000), rng.randint(20, 2000), rng.randint(1, 90) / 100
        spent += cost
        yield _printed(
            f"Tokens: {_rounded(sent)} sent, {_rounded(received)} received. "
            f"Cost: ${cost:.2f} message, ${spent:.2f} session."
        )
        for call in exchange.calls:
            if call.name == "Edit":
                yield _printed(f"Applied edit to {call.inputs['file_path']}")
                yield _printed(f"Commit {rng.getrandbits(28):07x} fix: Mend the scanner")
            elif call.name == "Bash":
                yield _typed("/run " + call.inputs["command"])
                yield _printed(call.output)


def _typed(text: str) -> str:
    lines = "  \n#### ".join(text.splitlines() or ["<blank>"])
    return f"\n#### {lines}  \n"


def _printed(text: str) -> str:
    return f"> {text.strip()}  \n"


def _edited(call: Call) -> str:
    path, old, new = (call.inputs[name] for name in ("file_path", "old_string", "new_string"))
    return f"{path}\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```\n\n"


def _rounded(count: int) -> str:
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{round(count / 1000)}k"


def swe_agent_run(
    rng: random.Random, exchanges: Iterable[Exchange], *, functions: bool = True
) -> dict[str, Any]:
    """Return a run of SWE-agent: its steps, its history and what came of it.

    Args:
        rng: where ids and numbers come from.
        exchanges: what is told; prompts after the first one are left out.
        functions: whether the model called functions, or wrote commands into its text.
    """
    history: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for exchange in exchanges:
        if not history:
            history.append(_entry("system", "You are an autonomous programmer.", "system_prompt"))
            history.append(_entry("user", f"We're solving this issue:\n{exchange.prompt}", "observation"))
        for call in exchange.calls:
            action = _command(call)
            text = exchange.thinking if functions else f"{exchange.thinking}\n```\n{action}\n```"
            said = _entry("assistant", text, "action") | {"thought": exchange.thinking, "action": action}
            answer = _entry("tool" if functions else "user", call.output, "observation")
            if functions:
                call_id = f"call_{rng.getrandbits(96):024x}"
                said["tool_calls"] = [_function(call_id, "bash", {"command": action})]
                answer["tool_call_ids"] = [call_id]
            history += [said, answer]
            state = {"open_file": "n/a", "working_dir": "/testbed"}
            steps.append({
                "action": action, "observation": call.output, "response": text, "thought": exchange.thinking,
                "execution_time": rng.randint(1, 900) / 1000, "state": state, "query": history[:-2],
            })  # fmt: skip
    info = {
        "submission": "diff --git a/scanner.py b/scanner.py",
        "exit_status": "submitted",
        "model_stats": {
            "instance_cost": 0.25, "tokens_sent": 7141, "tokens_received": 243, "api_calls": len(steps),
        },
    }  # fmt: skip
    replayed = json.dumps({"agent": {"model": {"name": "gpt-4o"}}})
    return {
        "environment": "main", "trajectory": steps, "history": history, "info": info,
        "replay_config": replayed,
    }  # fmt: skip


def mini_swe_agent_run(rng: random.Random, exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """Return a run of mini-SWE-agent with its provider's responses; ``messages`` alone is a run, too."""
    messages: list[dict[str, Any]] = []
    moment = 1_767_600_000.25
    for exchange in exchanges:
        if not messages:
            messages.append({"role": "system", "content": "You can interact with a shell."})
            messages.append({"role": "user", "content": exchange.prompt, "extra": {"timestamp": moment}})
        for call in exchange.calls:
            call_id, moment = f"call_{rng.getrandbits(96):024x}", moment + 2.5
            calls = [_function(call_id, "bash", {"command": _command(call)})]
            said = {"role": "assistant", "content": exchange.thinking, "tool_calls": calls}
            messages.append(
                said | {"extra": {"response": _response(rng, said), "cost": 0.01, "timestamp": moment}}
            )
            code = int(call.failed)
            messages.append({
                "role": "tool", "tool_call_id": call_id, "content": f"<returncode>{code}\n{call.output}",
                "extra": {"returncode": code, "timestamp": moment + 1},
            })  # fmt: skip
    stats = {"instance_cost": 0.01 * len(messages), "api_calls": len(messages) // 2}
    info = {"exit_status": "Submitted", "submission": "", "model_stats": stats, "mini_version": "2.0.0"}
    return {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}


def openhands_events(rng: random.Random, exchanges: Iterable[Exchange]) -> list[dict[str, Any]]:
    """Return the events of a conversation in OpenHands: actions, and the observations that they caused."""
    events: list[dict[str, Any]] = []
    for exchange in exchanges:
        asked = {"content": exchange.prompt, "image_urls": None, "wait_for_response": False}
        _happen(events, "user", exchange.prompt, action="message", args=asked)
        for call in exchange.calls:
            call_id = f"toolu_01{rng.getrandbits(88):022x}"
            command = _command(call)
            calls = [_function(call_id, "execute_bash", {"command": command})]
            said = {"role": "assistant", "content": exchange.thinking, "tool_calls": calls}
            metadata = {
                "function_name": "execute_bash", "tool_call_id": call_id,
                "model_response": _response(rng, said), "total_calls_in_response": 1,
            }  # fmt: skip
            args = {"command": command, "is_input": False, "thought": exchange.thinking, "hidden": False}
            _happen(
                events, "agent", f"Running command: {command}", action="run", args=args,
                tool_call_metadata=metadata, timeout=120,
            )  # fmt: skip
            extras = {"command": command, "metadata": {"exit_code": int(call.failed), "pid": -1}}
            _happen(
                events, "agent", f"Command `{command}` executed.", observation="run", content=call.output,
                cause=events[-1]["id"], extras=extras, tool_call_metadata=metadata,
            )  # fmt: skip
        args = {"content": exchange.reply, "image_urls": None, "wait_for_response": True}
        _happen(events, "agent", exchange.reply, action="message", args=args)
        state = {"agent_state": "awaiting_user_input", "reason": ""}
        _happen(
            events, "environment", "", observation="agent_state_changed", content="", extras=state,
            cause=events[-1]["id"],
        )  # fmt: skip
    return events


def openhands_output(rng: random.Random, runs: Iterable[Iterable[Exchange]]) -> bytes:
    """Return ``output.jsonl`` of an evaluation: one run a line."""
    lines = []
    for number, exchanges in enumerate(runs):
        metrics = {
            "accumulated_cost": 0.5,
            "accumulated_token_usage": {"prompt_tokens": 9, "completion_tokens": 4},
        }
        lines.append({
            "instance_id": f"ada__parser-{number}", "test_result": {"git_patch": "diff --git a/x b/x"},
            "instruction": "Mend the parser.", "metadata": {"llm_config": {"model": _MODEL}},
            "history": openhands_events(rng, exchanges), "metrics": metrics, "error": None,
        })  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines).encode("ascii")


def _entry(role: str, content: str, kind: str) -> dict[str, Any]:
    return {"role": role, "content": content, "agent": "main", "message_type": kind}


def _command(call: Call) -> str:
    if call.name == "Edit":
        return f"sed -i 's/$/ # mended/' {call.inputs['file_path']}"
    return call.inputs.get("command") or f"cat {call.inputs['file_path']}"


def _function(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": json.dumps(arguments)}, "id": call_id, "type": "function"}


def _response(rng: random.Random, said: dict[str, Any]) -> dict[str, Any]:
    """Return what an API answers, in the form that litellm gives the answers of all providers."""
    prompt, written = rng.randint(3000, 9000), rng.randint(5, 900)
    return {
        "id": f"chatcmpl-{rng.getrandbits(128):032x}",
        "created": 1_767_600_000,
        "model": _MODEL,
        "object": "chat.completion",
        "choices": [{"finish_reason": "tool_calls", "index": 0, "message": said | {"function_call": None}}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": prompt // 2},
            "cache_creation_input_tokens": 100,
        },
    }


def _happen(events: list[dict[str, Any]], source: str, message: str, **more: Any) -> None:
    moment = datetime(2026, 1, 5, 9, tzinfo=UTC) + timedelta(milliseconds=1301 * len(events))
    stamp = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    events.append({"id": len(events), "timestamp": stamp, "source": source, "message": message, **more})

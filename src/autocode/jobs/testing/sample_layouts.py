"""How the tools write a session down: the records of Claude Code, Codex and Gemini CLI, one story each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from autocode.jobs.testing.sample_story import Call, Exchange

__all__ = ["ClaudeCode", "Codex", "Ticker", "gemini_document", "identifier"]

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def identifier(rng: random.Random) -> str:
    """Return a UUID of version 4 drawn from *rng*."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _drawn(rng: random.Random, prefix: str, size: int) -> str:
    return prefix + "".join(rng.choice(_BASE62) for _ in range(size))


class Ticker:
    """A clock that moves on when it is read, by 1 ms to 9 s.

    Args:
        rng: where the steps come from.
        day: day of January 2026.
    """

    def __init__(self, rng: random.Random, day: int) -> None:
        self._rng = rng
        self._now = datetime(2026, 1, day, 9, tzinfo=UTC) + timedelta(milliseconds=rng.randrange(3_600_000))

    @property
    def seconds(self) -> int:
        """The time now, in seconds since 1970."""
        return int(self._now.timestamp())

    def __call__(self) -> str:
        """Move on and return the time, RFC 3339 in UTC with milliseconds."""
        self._now += timedelta(milliseconds=self._rng.randint(1, 9000))
        return self._now.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class ClaudeCode:
    """Writes exchanges as Claude Code does: a record per content block, linked by ``parentUuid``.

    Args:
        rng: where ids and numbers come from.
        clock: the session's clock.
        session: the session's id.
        cwd: the working folder.
        agent: id of the subagent that this file belongs to; empty for the main session.
    """

    def __init__(self, rng: random.Random, clock: Ticker, session: str, cwd: str, agent: str = "") -> None:
        self._rng = rng
        self._clock = clock
        self._parent: str | None = None
        self._base: dict[str, Any] = {
            "isSidechain": bool(agent),
            "userType": "external",
            "cwd": cwd,
            "sessionId": session,
            "version": "2.1.17",
            "gitBranch": "main",
        }
        if agent:
            self._base["agentId"] = agent

    def opening(self) -> Iterator[dict[str, Any]]:
        """Yield what stands before the first prompt; neither record has a uuid of its own."""
        yield {"type": "summary", "summary": "Mending the parser", "leafUuid": identifier(self._rng)}
        message = identifier(self._rng)
        snapshot = {"messageId": message, "trackedFileBackups": {}, "timestamp": self._clock()}
        yield {
            "type": "file-history-snapshot",
            "messageId": message,
            "snapshot": snapshot,
            "isSnapshotUpdate": False,
        }

    def exchange(self, exchange: Exchange) -> Iterator[dict[str, Any]]:
        """Yield the records of one exchange."""
        yield self._record("user", message={"role": "user", "content": exchange.prompt})
        message = self._message()
        thinking = {
            "type": "thinking",
            "thinking": exchange.thinking,
            "signature": _drawn(self._rng, "Er", 120),
        }
        yield self._said(message, thinking)
        for call in exchange.calls:
            yield from self._call(message, call)
            message = self._message()
        yield self._said(message, {"type": "text", "text": exchange.reply})
        took = self._rng.randint(900, 90_000)
        yield self._record("system", subtype="turn_duration", durationMs=took, isMeta=False)

    def handed_over(self, agent: str, prompt: str, answer: str) -> Iterator[dict[str, Any]]:
        """Yield a call of the Task tool that the subagent *agent* answered."""
        yield from self._call(
            self._message(), Call("Task", {"description": "Review", "prompt": prompt}, answer), agent=agent
        )

    def _call(self, message: dict[str, Any], call: Call, agent: str = "") -> Iterator[dict[str, Any]]:
        tool = _drawn(self._rng, "toolu_01", 22)
        used = self._said(
            message, {"type": "tool_use", "id": tool, "name": call.name, "input": dict(call.inputs)}
        )
        yield used
        if call.name == "Bash":
            data: dict[str, Any] = {
                "type": "bash_progress",
                "output": "",
                "fullOutput": "",
                "elapsedTimeSeconds": 2,
            }
            yield self._record("progress", data=data, toolUseID="bash-progress-0", parentToolUseID=tool)
        if agent:
            data = {"type": "agent_progress", "prompt": call.inputs["prompt"], "agentId": agent}
            yield self._record("progress", data=data, toolUseID=f"agent_{tool}", parentToolUseID=tool)
        block: dict[str, Any] = {"tool_use_id": tool, "type": "tool_result", "content": call.output}
        if call.failed:
            block["is_error"] = True
        result: Any = {"stdout": call.output, "stderr": "", "interrupted": False}
        yield self._record(
            "user",
            message={"role": "user", "content": [block]},
            toolUseResult=f"Error: {call.output}" if call.failed else result,
            sourceToolAssistantUUID=used["uuid"],
        )

    def _message(self) -> dict[str, Any]:
        return {
            "id": _drawn(self._rng, "msg_01", 22),
            "request": _drawn(self._rng, "req_011C", 20),
            "spent": 1,
        }

    def _said(self, message: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
        # The output count grows with each block of a message: only its last record is right.
        message["spent"] += self._rng.randint(5, 400)
        usage = {
            "input_tokens": self._rng.randint(3, 20),
            "cache_creation_input_tokens": self._rng.randint(0, 900),
            "cache_read_input_tokens": self._rng.randint(9_000, 90_000),
            "output_tokens": message["spent"],
            "service_tier": "standard",
        }
        body = {
            "model": "claude-sonnet-4-5-20250929",
            "id": message["id"],
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return self._record("assistant", message=body, requestId=message["request"])

    def _record(self, kind: str, **more: Any) -> dict[str, Any]:
        uuid = identifier(self._rng)
        stamp = self._clock()
        record = {
            "parentUuid": self._parent,
            **self._base,
            "type": kind,
            **more,
            "uuid": uuid,
            "timestamp": stamp,
        }
        self._parent = uuid
        return record


class Codex:
    """Writes exchanges as Codex CLI does: an envelope of timestamp, type and payload a line.

    Args:
        rng: where ids and numbers come from.
        clock: the session's clock.
        session: the session's id.
        cwd: the working folder.
    """

    def __init__(self, rng: random.Random, clock: Ticker, session: str, cwd: str) -> None:
        self._rng = rng
        self._clock = clock
        self._session = session
        self._cwd = cwd
        self._spent = 0

    def opening(self) -> Iterator[dict[str, Any]]:
        """Yield the session's first record."""
        git = {"commit_hash": f"{self._rng.getrandbits(160):040x}", "branch": "main"}
        yield self._line(
            "session_meta",
            id=self._session,
            timestamp=self._clock(),
            cwd=self._cwd,
            originator="codex_cli_rs",
            cli_version="0.104.0",
            source="cli",
            model_provider="openai",
            git=git,
        )

    def exchange(self, exchange: Exchange) -> Iterator[dict[str, Any]]:
        """Yield the records of one exchange."""
        turn = identifier(self._rng)
        yield self._line("turn_context", turn_id=turn, cwd=self._cwd, model="gpt-5.3-codex", effort="high")
        yield self._line("event_msg", type="task_started", turn_id=turn, model_context_window=258_400)
        asked = [{"type": "input_text", "text": exchange.prompt}]
        yield self._line("response_item", type="message", role="user", content=asked)
        yield self._line("event_msg", type="user_message", message=exchange.prompt, images=[])
        summary = [{"type": "summary_text", "text": exchange.thinking}]
        sealed = _drawn(self._rng, "gAAAAAB", 160)
        yield self._line(
            "response_item", type="reasoning", summary=summary, content=None, encrypted_content=sealed
        )
        for call in exchange.calls:
            yield from self._call(call)
        said = [{"type": "output_text", "text": exchange.reply}]
        yield self._line("event_msg", type="agent_message", message=exchange.reply)
        yield self._line("response_item", type="message", role="assistant", content=said)
        yield self._usage()
        yield self._line("event_msg", type="task_complete", turn_id=turn, last_agent_message=exchange.reply)

    def _call(self, call: Call) -> Iterator[dict[str, Any]]:
        tool = _drawn(self._rng, "call_", 24)
        if call.name == "Edit":
            patch = f"*** Begin Patch\n*** Update File: {call.inputs['file_path']}\n"
            patch += f"-{call.inputs['old_string']}\n"
            patch += f"+{call.inputs['new_string']}\n*** End Patch"
            yield self._line(
                "response_item",
                type="custom_tool_call",
                status="completed",
                call_id=tool,
                name="apply_patch",
                input=patch,
            )
            done = json.dumps({"output": call.output, "metadata": {"exit_code": 0}})
            yield self._line("response_item", type="custom_tool_call_output", call_id=tool, output=done)
            return
        command = call.inputs.get("command") or f"cat -n {call.inputs['file_path']}"
        arguments = json.dumps({"cmd": command, "workdir": self._cwd})
        yield self._line(
            "response_item", type="function_call", name="exec_command", arguments=arguments, call_id=tool
        )
        output = f"Process exited with code {int(call.failed)}\nOutput:\n{call.output}"
        yield self._line("response_item", type="function_call_output", call_id=tool, output=output)

    def _usage(self) -> dict[str, Any]:
        last = self._rng.randint(100, 9000)
        self._spent += last
        info = {
            "total_token_usage": {"input_tokens": self._spent, "output_tokens": self._spent // 9},
            "last_token_usage": {"input_tokens": last, "output_tokens": last // 9},
            "model_context_window": 258_400,
        }
        return self._line("event_msg", type="token_count", info=info, rate_limits=None)

    def _line(self, kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": self._clock(), "type": kind, "payload": payload}


def gemini_document(
    rng: random.Random, clock: Ticker, session: str, exchanges: list[Exchange]
) -> dict[str, Any]:
    """Return a session of Gemini CLI: one document with all messages."""
    messages: list[dict[str, Any]] = []
    start = clock()
    for exchange in exchanges:
        messages.append(
            {"id": identifier(rng), "timestamp": clock(), "type": "user", "content": exchange.prompt}
        )
        calls = [_gemini_call(rng, call) for call in exchange.calls]
        messages.append({
            "id": identifier(rng), "timestamp": clock(), "type": "gemini", "content": exchange.reply,
            "thoughts": [{"subject": "Looking", "description": exchange.thinking, "timestamp": clock()}],
            "tokens": {"input": rng.randint(100, 9000), "output": rng.randint(10, 900), "total": 9900},
            "toolCalls": calls, "model": "gemini-3-pro-preview",
        })  # fmt: skip
    return {
        "sessionId": session,
        "projectHash": f"{rng.getrandbits(256):064x}",
        "startTime": start,
        "lastUpdated": clock(),
        "messages": messages,
    }


def _gemini_call(rng: random.Random, call: Call) -> dict[str, Any]:
    result = {"functionResponse": {"name": call.name, "response": {"output": call.output}}}
    tool = f"{call.name}-{rng.getrandbits(40)}"
    return {"id": tool, "name": call.name, "args": call.inputs, "status": "success", "result": [result]}

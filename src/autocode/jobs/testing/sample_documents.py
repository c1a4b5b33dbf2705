"""How ChatGPT, claude.ai, Gemini CLI and ATIF write a session down: invented, with each format's oddities."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from autocode.jobs.testing.sample_layouts import Ticker, gemini_document, identifier
from autocode.jobs.testing.sample_story import Call, Exchange, story

__all__ = [
    "atif_trajectory",
    "chatgpt_conversation",
    "claude_ai_conversation",
    "gemini_lines",
    "write_documents",
]

_CWD = "/home/ada/src/parser"


def gemini_lines(
    rng: random.Random, clock: Ticker, session: str, exchanges: list[Exchange]
) -> list[dict[str, Any]]:
    """Return the lines of a session as later versions of Gemini CLI append them.

    The last answer is written twice, as while it streams, and a message was taken back.
    """
    document = gemini_document(rng, clock, session, exchanges)
    messages = document.pop("messages")
    last = messages[-1]
    early = {key: value for key, value in last.items() if key not in {"toolCalls", "tokens"}}
    taken_back = {"id": identifier(rng), "timestamp": clock(), "type": "user", "content": [{"text": "Stop."}]}
    return [
        document | {"kind": "main"},
        *messages[:-1],
        early,
        last,
        {"id": identifier(rng), "timestamp": clock(), "type": "info", "content": "Request cancelled."},
        taken_back,
        {"$rewindTo": taken_back["id"]},
        {"$set": {"lastUpdated": clock(), "summary": "Mending the parser"}},
    ]


def chatgpt_conversation(
    rng: random.Random, clock: Ticker, title: str, exchanges: Iterable[Exchange]
) -> dict[str, Any]:
    """Return a conversation of ChatGPT: a tree whose first answer was generated twice.

    It has a root without a message, a hidden system message, thoughts, tool calls with their results, and a
    picture; times are floats.
    """
    tree = _Tree(rng, clock)
    began = _seconds(clock)
    system = tree.message("client-created-root", "system", [""], is_visually_hidden_from_conversation=True)
    at = system
    for number, exchange in enumerate(exchanges):
        at = asked = tree.message(at, "user", [exchange.prompt])
        if number == 0:
            tree.message(asked, "assistant", ["That didn't help."], model_slug="gpt-4o")
            picture = {
                "content_type": "image_asset_pointer",
                "asset_pointer": "file-service://file-1",
                "width": 9,
            }
            at = tree.add(asked, "user", {"content_type": "multimodal_text", "parts": [picture, "As shown."]})
        thoughts = [{"summary": "Looking", "content": exchange.thinking}]
        at = tree.add(at, "assistant", {"content_type": "thoughts", "thoughts": thoughts}, model_slug="o3")
        for call in exchange.calls:
            code = {"content_type": "code", "language": "unknown", "text": json.dumps(call.inputs)}
            at = tree.add(at, "assistant", code, recipient=call.name.lower())
            at = tree.add(
                at, "tool", {"content_type": "execution_output", "text": call.output}, name=call.name.lower()
            )
        at = tree.message(at, "assistant", [exchange.reply], model_slug="o3")
    conversation = identifier(rng)
    return {
        "title": title,
        "create_time": began,
        "update_time": _seconds(clock),
        "mapping": tree.nodes,
        "moderation_results": [],
        "current_node": at,
        "conversation_id": conversation,
        "id": conversation,
    }


class _Tree:
    """The nodes of a conversation, by id."""

    def __init__(self, rng: random.Random, clock: Ticker) -> None:
        self._rng = rng
        self._clock = clock
        root: dict[str, Any] = {"id": "client-created-root", "message": None, "parent": None, "children": []}
        self.nodes: dict[str, dict[str, Any]] = {"client-created-root": root}

    def message(self, parent: str, role: str, parts: list[Any], **metadata: Any) -> str:
        """Add a message of text, and return its node."""
        return self.add(parent, role, {"content_type": "text", "parts": parts}, **metadata)

    def add(
        self,
        parent: str,
        role: str,
        content: dict[str, Any],
        *,
        recipient: str = "all",
        name: str | None = None,
        **metadata: Any,
    ) -> str:
        """Add a message of any content, and return its node."""
        node = identifier(self._rng)
        message: dict[str, Any] = {
            "id": node,
            "author": {"role": role, "name": name, "metadata": {}},
            "create_time": None if role == "system" else _seconds(self._clock),
            "content": content,
            "status": "finished_successfully",
            "end_turn": role == "assistant" and recipient == "all",
            "weight": 1.0,
            "metadata": metadata,
            "recipient": recipient,
        }
        self.nodes[node] = {"id": node, "message": message, "parent": parent, "children": []}
        self.nodes[parent]["children"].append(node)
        return node


def claude_ai_conversation(
    rng: random.Random, clock: Ticker, name: str, exchanges: Iterable[Exchange]
) -> dict[str, Any]:
    """Return a conversation of claude.ai, with thinking, tool calls, an attachment and microseconds."""
    began = _precise(clock)
    messages: list[dict[str, Any]] = []
    for number, exchange in enumerate(exchanges):
        files = [
            {"file_name": "notes.txt", "file_size": 12, "file_type": "txt", "extracted_content": "Mind this."}
        ]
        _say(
            rng, clock, messages, "human", [_text(exchange.prompt)], attachments=files if number == 0 else []
        )
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": exchange.thinking, "summaries": []}]
        for call in exchange.calls:
            blocks += _claude_ai_call(rng, call)
        _say(rng, clock, messages, "assistant", [*blocks, _text(exchange.reply)])
    return {
        "uuid": identifier(rng),
        "name": name,
        "summary": "",
        "created_at": began,
        "updated_at": _precise(clock),
        "account": {"uuid": identifier(rng)},
        "chat_messages": messages,
    }


def _say(
    rng: random.Random,
    clock: Ticker,
    messages: list[dict[str, Any]],
    sender: str,
    content: list[dict[str, Any]],
    **more: Any,
) -> None:
    parent = messages[-1]["uuid"] if messages else "00000000-0000-4000-8000-000000000000"
    at = _precise(clock)
    texts = [block["text"] for block in content if block["type"] == "text"]
    message = {"uuid": identifier(rng), "text": "\n\n".join(texts), "content": content, "sender": sender}
    message |= {"created_at": at, "updated_at": at, "attachments": [], "files": []}
    messages.append(message | {"parent_message_uuid": parent} | more)


def _claude_ai_call(rng: random.Random, call: Call) -> list[dict[str, Any]]:
    made = f"toolu_{rng.getrandbits(64):016x}"
    return [
        {"type": "tool_use", "id": made, "name": call.name, "input": call.inputs},
        {
            "type": "tool_result",
            "tool_use_id": made,
            "name": call.name,
            "content": [_text(call.output)],
            "is_error": call.failed,
        },
    ]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def atif_trajectory(
    rng: random.Random, clock: Ticker, exchanges: Iterable[Exchange], *, version: str = "1.8"
) -> dict[str, Any]:
    """Return a trajectory in ATIF, with that of a subagent within it."""
    steps: list[dict[str, Any]] = []
    subagents = []
    for number, exchange in enumerate(exchanges):
        steps.append(_step(steps, clock, "user", exchange.prompt))
        step = _step(steps, clock, "agent", exchange.reply) | {
            "model_name": "model-1",
            "reasoning_content": exchange.thinking,
            "tool_calls": [
                {
                    "tool_call_id": f"call-{len(steps)}-{n}",
                    "function_name": call.name,
                    "arguments": call.inputs,
                }
                for n, call in enumerate(exchange.calls)
            ],
            "observation": {
                "results": [
                    {"source_call_id": f"call-{len(steps)}-{n}", "content": call.output}
                    for n, call in enumerate(exchange.calls)
                ]
            },
            "metrics": {
                "prompt_tokens": rng.randint(500, 900),
                "cached_tokens": rng.randint(1, 400),
                "completion_tokens": rng.randint(1, 99),
                "cost_usd": 0.01,
            },
        }
        steps.append(step)
        if number == 0:
            subagent = identifier(rng)
            inner: list[dict[str, Any]] = []
            inner.append(_step(inner, clock, "user", "Review the change."))
            inner.append(_step(inner, clock, "agent", [{"type": "text", "text": "It is sound."}]))
            subagents.append(_trajectory(rng, inner, version) | {"trajectory_id": subagent})
            step["observation"]["results"][0]["subagent_trajectory_ref"] = [{"trajectory_id": subagent}]
    whole = _trajectory(rng, steps, version)
    prompts = [step["metrics"]["prompt_tokens"] for step in steps if "metrics" in step]
    return whole | {
        "final_metrics": {"total_prompt_tokens": sum(prompts)},
        "subagent_trajectories": subagents,
    }


def _step(steps: list[dict[str, Any]], clock: Ticker, source: str, message: Any) -> dict[str, Any]:
    return {"step_id": len(steps) + 1, "timestamp": clock(), "source": source, "message": message}


def _trajectory(rng: random.Random, steps: list[dict[str, Any]], version: str) -> dict[str, Any]:
    return {
        "schema_version": f"ATIF-v{version}",
        "session_id": identifier(rng),
        "agent": {"name": "ada", "version": "0.9", "model_name": "model-1"},
        "steps": steps,
    }


def _seconds(clock: Ticker) -> float:
    return datetime.fromisoformat(clock()).timestamp()


def _precise(clock: Ticker) -> str:
    return clock().removesuffix("Z") + "123+00:00"


def write_documents(folder: Path, *, seed: int = 0) -> dict[str, Path]:
    """Write a session or two of each format below *folder*, and return the files by what they show.

    The same arguments give the same bytes on every machine. Not atomic: files are written one by one.

    Args:
        folder: where to write; files that are there already are replaced.
        seed: the seed of everything that is drawn.
    """
    rng = random.Random(f"{seed}/documents")  # noqa: S311 - sample text, reproducible on purpose
    clock = Ticker(rng, 12)
    tales = [list(islice(story(rng, _CWD), 2)) for _ in range(2)]
    chats = f"gemini-cli/tmp/{rng.getrandbits(256):064x}/chats"
    titles = ("Mending the parser", "Nested comments")
    lines = gemini_lines(rng, clock, identifier(rng), tales[0])
    documents = {
        "gemini-cli": (f"{chats}/session-1.json", gemini_document(rng, clock, identifier(rng), tales[0]), 2),
        "chatgpt": (
            "chatgpt/conversations.json",
            [chatgpt_conversation(rng, clock, *each) for each in zip(titles, tales, strict=True)],
            None,
        ),
        "claude-ai": (
            "claude-ai/conversations.json",
            [claude_ai_conversation(rng, clock, *each) for each in zip(titles, tales, strict=True)],
            None,
        ),
        "claude-ai-single": (
            "claude-ai/one.json",
            claude_ai_conversation(rng, clock, titles[0], tales[0]),
            2,
        ),
        "atif": ("atif/trajectory.json", atif_trajectory(rng, clock, tales[0]), 2),
    }
    written = {"gemini-cli-lines": folder / chats / "session-2.jsonl"}
    written["gemini-cli-lines"].parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    written["gemini-cli-lines"].write_bytes(text.encode())
    for name, (relative, document, indent) in documents.items():
        path = written[name] = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json.dumps(document, indent=indent).encode())
    return written

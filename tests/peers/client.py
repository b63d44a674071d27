"""Drives the official Python client, as `client.mjs` does with the TypeScript one.

The one argument is a JSON object: the server's `command` or `url`, what the person does with a question
(`elicitation`: approve, decline, cancel, empty, silence, or null for a client that cannot show one), whether
the client knows the 2025 revisions only (`legacy`), and `steps`. A question of the server itself is answered
with a text, and so is a request for sampling. Prints the revision that was agreed on, an outcome for each step, and the questions.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters, types


def answers(kind, questions):
    """The callback that stands for the person."""
    results = {
        "approve": {"action": "accept", "content": {"approve": True}},
        "decline": {"action": "decline"},
        "cancel": {"action": "cancel"},
        "empty": {"action": "accept", "content": {}},
    }

    async def answer(_context, params):
        questions.append(params.message)
        for field in ("text", "name"):
            if field in params.requested_schema["properties"]:
                return types.ElicitResult(action="accept", content={field: "as asked"})
        if kind == "silence":
            await asyncio.Event().wait()
        return types.ElicitResult(**results[kind])

    return None if kind is None else answer


async def sample(_context, _params):
    """The callback that stands for a model."""
    content = types.TextContent(type="text", text="as sampled")
    return types.CreateMessageResult(role="assistant", content=content, model="peer")


async def step(client, what):
    """Takes one step and says how it ended."""
    progress = []

    async def progressed(done, _total, _message):
        progress.append(done)

    try:
        if what["do"] == "list_tools":
            return {"tools": [tool.name for tool in (await client.list_tools()).tools]}
        if what["do"] == "list_prompts":
            return {"prompts": [prompt.name for prompt in (await client.list_prompts()).prompts]}
        if what["do"] == "read_resource":
            return {"text": (await client.read_resource(what["uri"])).contents[0].text}
        told = progressed if what.get("progress") else None
        result = await client.call_tool(what["name"], what["arguments"], progress_callback=told)
    except MCPError as error:
        return {"error": error.error.code, "message": error.error.message}
    return {
        "is_error": bool(result.is_error),
        "text": "".join(part.text for part in result.content if part.type == "text"),
        "refusal": (result.meta or {}).get("gatewright/refusal"),
        "progress": progress,
    }


def server(script):
    """Where the gate is."""
    if "url" in script:
        return script["url"]
    program, *arguments = script["command"]
    return StdioServerParameters(command=program, args=arguments, env=script["env"])


# A client that waits for ever fails its test instead of holding it up.
LATE_SECONDS = 60


async def main():
    script = json.loads(sys.argv[1])
    questions = []
    client = Client(
        server(script),
        elicitation_callback=answers(script["elicitation"], questions),
        sampling_callback=sample,
        mode="legacy" if script["legacy"] else "auto",
    )
    async with client:
        outcomes = [await step(client, what) for what in script["steps"]]
        revision = client.protocol_version
    print(json.dumps({"revision": revision, "outcomes": outcomes, "questions": questions}))


asyncio.run(asyncio.wait_for(main(), LATE_SECONDS))

"""A server of a few files on the official Python package, which speaks the revisions of both eras.

Its tools are named as those of the official servers, so that one configuration serves all. `edit_file` asks
for the text itself: in the 2025 revisions with a request to the client, from 2026-07-28 on in its result.
"""

from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("files")


class Text(BaseModel):
    """What the person is asked for."""

    text: str


async def wanted(path: str) -> Elicit[Text]:
    """Asks for the text of a file."""
    return Elicit(f"What shall {Path(path).name} say?", Text)


@server.tool()
def read_text_file(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


@server.tool()
def write_file(path: str, content: str) -> str:
    """Writes a file."""
    Path(path).write_text(content)
    return "written"


@server.tool()
def create_directory(path: str) -> str:
    """Makes a folder."""
    Path(path).mkdir()
    return "made"


@server.tool()
def edit_file(path: str, answer: Annotated[Text, Resolve(wanted)]) -> str:
    """Writes what the person says into a file."""
    Path(path).write_text(answer.text)
    return "edited"


@server.tool(name="trigger-long-running-operation")
async def count(steps: int, context: Context) -> str:
    """Counts, and says how far it has come."""
    for done in range(1, steps + 1):
        await context.report_progress(done, steps)
    return "counted"


@server.resource("demo://resource/dynamic/text/1")
def text() -> str:
    """A text."""
    return "Resource 1: a text"


server.run()

// Drives version 2 of the official TypeScript client, as `client.py` does with the Python one; see there.
// Run with the folder of the installed packages as working directory.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const sdk = (path) => import(pathToFileURL(require.resolve("@modelcontextprotocol/client" + path)));
const { Client, ProtocolError, StreamableHTTPClientTransport } = await sdk("");
const { StdioClientTransport } = await sdk("/stdio");

const ANSWERS = {
  approve: { action: "accept", content: { approve: true } },
  decline: { action: "decline" },
  cancel: { action: "cancel" },
  empty: { action: "accept", content: {} },
};

const script = JSON.parse(process.argv[2]);
const questions = [];
const client = new Client(
  { name: "peer", version: "2" },
  {
    capabilities: script.elicitation === null ? {} : { elicitation: {} },
    versionNegotiation: { mode: script.legacy ? "legacy" : "auto" },
  },
);
if (script.elicitation !== null) {
  client.setRequestHandler("elicitation/create", (request) => {
    questions.push(request.params.message);
    if ("text" in request.params.requestedSchema.properties) {
      return { action: "accept", content: { text: "as asked" } };
    }
    return ANSWERS[script.elicitation] ?? new Promise(() => {});
  });
}

async function step(what) {
  try {
    if (what.do === "list_tools") {
      return { tools: (await client.listTools()).tools.map((tool) => tool.name) };
    }
    const result = await client.callTool({ name: what.name, arguments: what.arguments });
    return {
      is_error: result.isError ?? false,
      text: result.content.filter((part) => part.type === "text").map((part) => part.text).join(""),
      refusal: result._meta?.["gatewright/refusal"] ?? null,
    };
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { error: error.code, message: error.message };
  }
}

// A client that waits for ever fails its test instead of holding it up.
const LATE_MS = 60_000;
setTimeout(() => {
  console.error("the client waits for ever");
  process.exit(1);
}, LATE_MS).unref();

function transport() {
  if (script.url) return new StreamableHTTPClientTransport(new URL(script.url));
  const [command, ...args] = script.command;
  return new StdioClientTransport({ command, args, env: script.env });
}

await client.connect(transport());
const outcomes = [];
for (const what of script.steps) outcomes.push(await step(what));
const revision = client.getNegotiatedProtocolVersion();
await client.close();
console.log(JSON.stringify({ revision, outcomes, questions }));
process.exit(0);

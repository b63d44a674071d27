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
    capabilities: { sampling: {}, ...(script.elicitation === null ? {} : { elicitation: {} }) },
    versionNegotiation: { mode: script.legacy ? "legacy" : "auto" },
  },
);
if (script.elicitation !== null) {
  client.setRequestHandler("elicitation/create", (request) => {
    questions.push(request.params.message);
    for (const field of ["text", "name"]) {
      if (field in request.params.requestedSchema.properties) {
        return { action: "accept", content: { [field]: "as asked" } };
      }
    }
    return ANSWERS[script.elicitation] ?? new Promise(() => {});
  });
}

client.setRequestHandler("sampling/createMessage", () => ({
  role: "assistant",
  content: { type: "text", text: "as sampled" },
  model: "peer",
}));

async function step(what) {
  const progress = [];
  const told = what.progress ? { onprogress: (made) => progress.push(made.progress) } : {};
  try {
    if (what.do === "list_tools") {
      return { tools: (await client.listTools()).tools.map((tool) => tool.name) };
    }
    if (what.do === "list_prompts") {
      return { prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name) };
    }
    if (what.do === "read_resource") {
      return { text: (await client.readResource({ uri: what.uri })).contents[0].text };
    }
    const call = { name: what.name, arguments: what.arguments };
    const result = await client.callTool(call, told);
    return {
      is_error: result.isError ?? false,
      text: result.content.filter((part) => part.type === "text").map((part) => part.text).join(""),
      refusal: result._meta?.["gatewright/refusal"] ?? null,
      progress,
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

const link = transport();
await client.connect(link);
const outcomes = [];
for (const what of script.steps) outcomes.push(await step(what));
const revision = client.getNegotiatedProtocolVersion();
// A session of the 2025 revisions is ended by its client.
await link.terminateSession?.();
await client.close();
console.log(JSON.stringify({ revision, outcomes, questions }));
process.exit(0);

//! `gatewright serve` as an operator sees it: what it refuses to start with, what its clients get, and how it ends.

mod admin;
mod boot;
mod children;
mod door;
mod end;
mod long;
mod tls;

/// A server of both eras that says its name. It leaves when it is told to, and `hold` waits for a byte from the port that is
/// its second argument.
const SERVER: &str = r#"
import json, os, signal, socket, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    tool = message.get("params", {}).get("name")
    if tool == "leave":
        os._exit(7)
    if tool == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if tool == "hold":
        held = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        print("held", file=sys.stderr, flush=True)
        held.recv(1)
    result = {"resultType": "complete", "content": [{"type": "text", "text": sys.argv[1]}]}
    if message["method"] == "server/discover":
        result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// Both chains and a listener; endpoints come behind it. Deadlines are real time, and a busy machine must not fail
/// a test that is not about time.
const OPEN: &str = "[[tools]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n\
                    [[reads]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n\
                    [audit]\nto = 'audit.jsonl'\n[listen]\naddress = '127.0.0.1:0'\n";

/// The endpoint `/NAME` of a [`SERVER`] with this name.
fn endpoint(name: &str) -> String {
    endpoint_with(name, &[], "")
}

/// The same with further arguments and lines.
fn endpoint_with(name: &str, arguments: &[&str], lines: &str) -> String {
    let mut command = vec!["python3", "-c", SERVER, name];
    command.extend(arguments);
    let command = serde_json::json!(command);
    format!("[[endpoint]]\npath = '/{name}'\ncommand = {command}\n{lines}\n")
}

//! Files that a gate guards, and runs of a client against it.

use std::fs;
use std::path::PathBuf;

use gatewright::audit::read::verify;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::peers::{Over, Peers, STATELESS, Server};
use crate::support::serving::{CACHE, Serving};

/// A folder that is shared and one that is not, both open to the server; only the gate keeps them apart.
pub(super) struct Place {
    folder: TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        fs::create_dir(place.path("share")).unwrap();
        fs::create_dir(place.path("private")).unwrap();
        fs::write(place.path("share/a.txt"), "hello").unwrap();
        fs::write(place.path("gatewright.toml"), place.configuration()).unwrap();
        place
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn configuration(&self) -> String {
        format!(
            r#"
[[tools]]
policy = "builtin:allowlist"
config = {{ allow = ["list_*", "read_*", "write_file", "echo", "trigger-*"], ask = ["create_directory", "edit_file"], prompt = "A new folder?" }}
deadline-ms = 2000

[[tools]]
policy = "builtin:paths"
deadline-ms = 2000
[tools.config]
roots = [{share:?}]
[tools.config.tools]
read_text_file = {{ arguments = ["path"] }}
write_file = {{ arguments = ["path"] }}
create_directory = {{ arguments = ["path"] }}
edit_file = {{ arguments = ["path"] }}
echo = {{ arguments = [] }}
trigger-long-running-operation = {{ arguments = [] }}
trigger-sampling-request = {{ arguments = [] }}
trigger-elicitation-request = {{ arguments = [] }}

[ask]
deadline-ms = 3000

[audit]
to = {audit:?}
"#,
            share = self.path("share").display().to_string(),
            audit = self.path("audit.jsonl").display().to_string()
        )
    }

    /// Runs the steps, and gives the outcome of each and the questions that were put.
    pub(super) fn run(
        &self,
        peers: Peers,
        elicitation: Option<&str>,
        steps: &[Value],
    ) -> (Vec<Value>, Vec<String>) {
        let Peers(client, server, revision, over) = peers;
        let mut script = json!({
            "elicitation": elicitation,
            "legacy": revision != STATELESS,
            "steps": steps,
        });
        let serving = match over {
            Over::Stdio => {
                let gate = PathBuf::from(env!("CARGO_BIN_EXE_gatewright"));
                let mut command = vec![gate, "wrap".into(), "--config".into()];
                command.extend([self.path("gatewright.toml"), "--".into()]);
                command.extend(server.command(self));
                script["command"] = json!(command);
                script["env"] = json!({
                    "PATH": std::env::var("PATH").unwrap(), "XDG_CACHE_HOME": CACHE, "GATEWRIGHT_LOG": "warn"
                });
                None
            }
            Over::Http => {
                let serving = Serving::start(&self.serving());
                script["url"] = json!(serving.urls[server as usize]);
                Some(serving)
            }
        };
        let output = client.command().arg(script.to_string()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{peers:?}: {stderr}");
        let said: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{peers:?}: {error} in {:?}; {stderr}", output.stdout));
        assert_eq!(json!(revision), said["revision"]);
        if let Some(serving) = serving {
            // The gate may hear of closed connections a little after their client has ended.
            let closed = (0..1000).any(|_| open(&serving).is_empty());
            assert!(closed, "its client has left: {:?}", open(&serving));
            serving.end();
        }
        let log = fs::read(self.path("audit.jsonl")).unwrap();
        assert_eq!(
            Vec::<(u64, String)>::new(),
            verify(log.as_slice()).unwrap().faults
        );
        let outcomes = said["outcomes"].as_array().unwrap().clone();
        let questions = said["questions"].as_array().unwrap();
        (
            outcomes,
            questions
                .iter()
                .map(|question| question.as_str().unwrap().to_owned())
                .collect(),
        )
    }

    /// The same chains for `gatewright serve`, with an endpoint for each server.
    fn serving(&self) -> String {
        let mut configuration = self.configuration();
        configuration.push_str(
            "[[reads]]\npolicy = 'builtin:allowlist'\nconfig = { allow = ['tools/list', 'resources/*'] }\n\
             deadline-ms = 2000\n[listen]\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n",
        );
        for server in Server::ALL {
            let command = json!(server.command(self));
            configuration.push_str(&format!(
                "[[endpoint]]\npath = '/{server:?}'\ncommand = {command}\n"
            ));
        }
        configuration
    }

    pub(super) fn call(&self, name: &str, path: &str) -> Value {
        let mut arguments = json!({"path": self.path(path)});
        if name == "write_file" {
            arguments["content"] = json!("written");
        }
        json!({"do": "call", "name": name, "arguments": arguments})
    }
}

/// What is counted of open sessions and streams, as far as there are any.
fn open(serving: &Serving) -> Vec<String> {
    let metrics = serving.admin_text("/metrics");
    let mut counts: Vec<String> = ["gatewright_sessions{", "gatewright_streams{"]
        .iter()
        .flat_map(|name| metrics.lines().filter(move |line| line.starts_with(name)))
        .map(str::to_owned)
        .collect();
    assert_eq!(2 * Server::ALL.len(), counts.len(), "{metrics}");
    counts.retain(|line| !line.ends_with(" 0"));
    counts
}

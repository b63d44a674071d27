//! `gatewright demo`: the whole gate in one process, told as a story.
//!
//! The server, the client and the person are small and in memory; the gate, the policies and the audit
//! log are the real ones.

#![expect(
    clippy::indexing_slicing,
    reason = "a JSON value indexed by a name or a number gives null where there is nothing"
)]

mod client;
mod server;

use std::borrow::Cow;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::audit::AuditLog;
use gatewright::audit::read::verify;
use gatewright::clock::{Clock, SystemClock};
use gatewright::config;
use gatewright::decision::Mode;
use gatewright::gate::ask::AskSettings;
use gatewright::host::guards::{self, ChainSettings, GuardSettings};
use gatewright::host::{Host, Settings};
use gatewright::policy::engine::EngineSettings;
use gatewright::policy::limits::{Grants, Limits, PolicySettings, Source};
use gatewright::policy::reload::Proof;
use gatewright::session::ClientLink;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::shown;
use client::{Client, Reply};

/// The rules of the first policy of the chain.
const RULES: &str = r#"{"allow":["list_notes","add_note","crash","spin"],"ask":["deploy"],"deny":["delete_*"],"prompt":"Deploying changes what customers see."}"#;

/// The second policy of the chain, which fails on purpose.
const FAULTY: &str = include_str!("demo/faulty.wat");

/// How long a policy of the demonstration may take. Long enough for a machine that is busy compiling.
const POLICY_DEADLINE: Duration = Duration::from_millis(250);

/// How long the scripted person may leave a question open; one who plays along has longer.
const SCRIPTED_DEADLINE: Duration = Duration::from_millis(1000);
const INTERACTIVE_DEADLINE: Duration = Duration::from_secs(50);

/// Lines in flight between the parts.
const LINES_MAX: usize = 64;

#[derive(Args, Debug)]
pub(super) struct Demo {
    /// Answer the gate's questions yourself
    #[arg(long)]
    interactive: bool,
}

/// One call of the story.
struct Scene {
    title: &'static str,
    tool: &'static str,
    arguments: fn() -> Value,
    reply: Reply,
}

const SCENES: &[Scene] = &[
    Scene {
        title: "Allowed: the rules list the tool under `allow`",
        tool: "list_notes",
        arguments: || json!({}),
        reply: Reply::Silence,
    },
    Scene {
        title: "Asked, and the person approves",
        tool: "deploy",
        arguments: || json!({"target": "staging"}),
        reply: Reply::Approve,
    },
    Scene {
        title: "Asked, and the person declines",
        tool: "deploy",
        arguments: || json!({"target": "production"}),
        reply: Reply::Decline,
    },
    Scene {
        title: "Asked, and nobody answers in time",
        tool: "deploy",
        arguments: || json!({"target": "the moon"}),
        reply: Reply::Silence,
    },
    Scene {
        title: "Denied: the rules list the tool under `deny`",
        tool: "delete_notes",
        arguments: || json!({}),
        reply: Reply::Silence,
    },
    Scene {
        title: "A policy crashes: no decision is a denial",
        tool: "crash",
        arguments: || json!({}),
        reply: Reply::Silence,
    },
    Scene {
        title: "A policy never answers: it is cut off after 250 ms, and that is a denial",
        tool: "spin",
        arguments: || json!({}),
        reply: Reply::Silence,
    },
];

impl Demo {
    pub(super) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.tell())?;
        Ok(ExitCode::SUCCESS)
    }

    #[expect(clippy::print_stdout, reason = "the command's answer")]
    async fn tell(&self) -> Result<()> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (audit, records) = AuditLog::in_memory(Arc::clone(&clock));
        let guards = guards::load(chain()?, Arc::clone(&clock))?.guards;
        let host = Host::new(guards, Arc::new(audit), clock, self.settings())?;
        let (link, log) = server::start();
        let (to_gate, incoming) = mpsc::channel(LINES_MAX);
        let (outgoing, from_gate) = mpsc::channel(LINES_MAX);
        let client_side = ClientLink {
            incoming,
            outgoing,
            gone: CancellationToken::new(),
        };
        println!("A client, the gate with two policies, and a server with notes.\n");
        let client = async {
            let mut client = Client::open(to_gate, from_gate).await?;
            for (at, scene) in SCENES.iter().enumerate() {
                println!("{}. {}", at + 1, scene.title);
                self.play(&mut client, scene).await?;
            }
            anyhow::Ok(())
        };
        let (ended, told) = tokio::join!(host.serve(client_side, link), client);
        ended?;
        told?;
        let received = log.lock().unwrap_or_else(PoisonError::into_inner);
        println!("What reached the server, and nothing else did:");
        for call in received.iter() {
            println!("     {}", shown(call));
        }
        println!("\n{}", recorded(&records)?);
        Ok(())
    }

    fn settings(&self) -> Settings {
        let deadline = if self.interactive {
            INTERACTIVE_DEADLINE
        } else {
            SCRIPTED_DEADLINE
        };
        Settings {
            server: "notes".to_owned(),
            asks: AskSettings {
                deadline,
                ..AskSettings::default()
            },
            ..Settings::default()
        }
    }

    #[expect(clippy::print_stdout, reason = "the command's answer")]
    async fn play(&self, client: &mut Client, scene: &Scene) -> Result<()> {
        let arguments = (scene.arguments)();
        println!("   client > tools/call {} {arguments}", scene.tool);
        let result = client
            .call(scene.tool, &arguments, |question| {
                for line in question.lines() {
                    println!("   gate   ? {}", shown(line));
                }
                let reply = if self.interactive {
                    answer_of_the_person()?
                } else {
                    scene.reply
                };
                println!(
                    "   person > {}",
                    match reply {
                        Reply::Approve => "yes",
                        Reply::Decline => "no",
                        Reply::Silence => "(nobody is there)",
                    }
                );
                Ok(reply)
            })
            .await?;
        println!("   {}\n", told(&result));
        Ok(())
    }
}

/// The server's answer, or the gate's refusal.
fn told(result: &Value) -> String {
    match result["_meta"].get("gatewright/refusal") {
        None => format!(
            "server > {}",
            shown(result["content"][0]["text"].as_str().unwrap_or_default())
        ),
        Some(refusal) => format!(
            "gate   > refused, code {}: {}",
            shown(refusal["code"].as_str().unwrap_or_default()),
            shown(refusal["detail"].as_str().unwrap_or_default())
        ),
    }
}

#[expect(clippy::print_stdout, reason = "a question to the person at the terminal")]
fn answer_of_the_person() -> Result<Reply> {
    print!("   approve? [y/N, or s to say nothing] ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .context("cannot read your answer")?;
    Ok(match line.trim() {
        "y" | "Y" | "yes" => Reply::Approve,
        "s" => Reply::Silence,
        _ => Reply::Decline,
    })
}

fn chain() -> Result<GuardSettings> {
    let limits = Limits {
        deadline: POLICY_DEADLINE,
        ..Limits::default()
    };
    let allowlist = PolicySettings {
        limits: limits.clone(),
        ..config::policy("demo", &format!("builtin:allowlist={RULES}"))?
    };
    let faulty = PolicySettings {
        name: "faulty.wat".to_owned(),
        source: Source::Bytes {
            name: "faulty.wat".to_owned(),
            bytes: Cow::Borrowed(FAULTY.as_bytes()),
        },
        config_json: String::new(),
        mode: Mode::Enforce,
        limits,
        grants: Grants::default(),
    };
    Ok(GuardSettings {
        engine: EngineSettings::default(),
        cache: None,
        proof: Proof::Loads,
        tools: ChainSettings::Policies(vec![allowlist, faulty]),
        reads: ChainSettings::Unset,
    })
}

/// What the audit log has, and whether its chain is whole.
fn recorded(records: &Mutex<Vec<String>>) -> Result<String> {
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    let report = verify(records.join("\n").as_bytes()).context("cannot read the records back")?;
    let whole = if report.faults.is_empty() {
        "whole"
    } else {
        "broken"
    };
    Ok(format!(
        "{} audit records were written; their hash chain is {whole}.",
        records.len()
    ))
}

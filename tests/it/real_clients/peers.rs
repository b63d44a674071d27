//! The clients and servers of others, and who of them talks to whom.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::place::Place;

/// An official client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Client {
    /// PyPI `mcp` 2.x.
    Python,
    /// npm `@modelcontextprotocol/sdk` 1.x.
    TypeScript,
    /// npm `@modelcontextprotocol/client` 2.x.
    TypeScript2,
    /// `rmcp` 3.x, in `tests/peers/rmcp`.
    Rust,
}

/// How the client reaches the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// `gatewright wrap`.
    Stdio,
    /// `gatewright serve`.
    Http,
}

/// A server behind the gate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server {
    /// `@modelcontextprotocol/server-filesystem`.
    Filesystem,
    /// `@modelcontextprotocol/server-everything`.
    Everything,
    /// `tests/peers/server.py`.
    Files,
}

/// Who talks to whom, the revision on which they agree, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peers(
    pub(super) Client,
    pub(super) Server,
    pub(super) &'static str,
    pub(super) Over,
);

pub(super) const LATEST_OF_2025: &str = "2025-11-25";
pub(super) const STATELESS: &str = "2026-07-28";

/// A folder of installed peers.
pub(crate) fn installed(name: &str) -> PathBuf {
    let folder = top().join("target/peers").join(name);
    assert!(
        folder.join("complete").is_file(),
        "{} is not installed: run `cargo xtask peers`",
        folder.display()
    );
    folder
}

impl Client {
    pub(super) fn command(self) -> Command {
        let (folder, program, script) = match self {
            Self::Python => (installed("python"), "bin/python", "client.py"),
            Self::TypeScript => (installed("node"), "node", "client.mjs"),
            Self::TypeScript2 => (installed("node"), "node", "client2.mjs"),
            Self::Rust => return Command::new(built()),
        };
        let program = match self {
            Self::Python => folder.join(program),
            Self::TypeScript | Self::TypeScript2 | Self::Rust => PathBuf::from(program),
        };
        let mut command = Command::new(program);
        command
            .arg(top().join("tests/peers").join(script))
            .current_dir(folder);
        command
    }
}

/// The client on the official Rust package.
fn built() -> PathBuf {
    let program = top().join("target/peers/rmcp/debug/gatewright-test-rmcp");
    assert!(
        program.is_file(),
        "{} is not built: run `cargo xtask peers`",
        program.display()
    );
    program
}

impl Server {
    /// In the order of their endpoints.
    pub(super) const ALL: [Self; 3] = [Self::Filesystem, Self::Everything, Self::Files];

    pub(super) fn command(self, place: &Place) -> Vec<PathBuf> {
        match self {
            Self::Filesystem => vec![
                "node".into(),
                installed("node").join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"),
                place.path("share"),
                place.path("private"),
            ],
            Self::Everything => vec![
                "node".into(),
                installed("node").join("node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
            ],
            Self::Files => vec![
                installed("python").join("bin/python"),
                top().join("tests/peers/server.py"),
            ],
        }
    }
}

pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

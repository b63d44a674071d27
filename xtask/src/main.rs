//! Tasks of the repository, run as `cargo xtask TASK`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task talks to the person who runs it"
)]

mod bench;
mod command;
mod conformance;
mod docs;
mod load;
mod peers;
mod plugins;
mod test;

use std::env;
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask TASK

  test               everything that must hold before a change goes in
  plugins            build the standard policies and carry them in src/policy/carried
  plugins --check    fail if what is carried was not built from the sources
  plugins --bindings write the policies' bindings anew from wit/ (needs wit-bindgen-cli)
  peers              install the MCP servers and clients that the tests talk to
  conformance        hold the gate against the official suite, as the server behind it is held
  conformance --direct  only that server
  docs               run what the documentation tells a reader to run
  bench              run the benchmarks
  load [SECONDS]     put policies in three languages under load, 30 seconds (needs npm and python3)
  fuzz [SECONDS]     fuzz every target, 60 seconds each (needs nightly and cargo-fuzz)";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["test"] => test::everything(),
        ["plugins"] => plugins::build(),
        ["plugins", "--check"] => plugins::check(),
        ["plugins", "--bindings"] => plugins::bindings(),
        ["peers"] => peers::install(),
        ["conformance"] => conformance::compare(false),
        ["conformance", "--direct"] => conformance::compare(true),
        ["docs"] => docs::run(),
        ["bench"] => bench::bench(),
        ["load"] => load::load("30"),
        ["load", seconds] => load::load(seconds),
        ["fuzz"] => bench::fuzz("60"),
        ["fuzz", seconds] => bench::fuzz(seconds),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

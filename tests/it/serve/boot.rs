//! What does not start says why, and what to do, before anybody can connect.

use std::fs;

use super::{OPEN, endpoint};
use crate::support::policies::{Does, wat_policy};
use crate::support::serving::{Serving, gatewright};

/// Both chains and nothing else.
const CHAINS: &str = "[[tools]]\npolicy = 'builtin:allow-all'\n[[reads]]\npolicy = 'builtin:allow-all'\n";
const CHILD: &str = "[[endpoint]]\npath = '/a'\ncommand = ['true']\n";

/// The gate exits with 2, says all of these, and never listened.
#[track_caller]
fn check(configuration: &str, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, does) in [("traps.wat", Does::Trap), ("loops.wat", Does::Loop)] {
        fs::write(folder.path().join(name), wat_policy(does)).unwrap();
    }
    fs::write(folder.path().join("none.pem"), "no certificate").unwrap();
    let (ended, said) = Serving::refused(folder.path(), configuration);
    assert_eq!(Some(2), ended.code(), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` in {said}");
    }
    assert!(
        !said.contains("listening on") && !said.contains("admin on"),
        "{said}"
    );
    assert!(
        !folder.path().join("audit.jsonl").exists(),
        "nothing was written: {said}"
    );
}

/// As [`check`], with chains, an endpoint, and these lines, of which the first is line 8.
#[track_caller]
fn check_lines(lines: &str, parts: &[&str]) {
    check(&format!("{CHAINS}{CHILD}{lines}"), parts);
}

/// As [`check`], with chains, and an endpoint that has these lines.
#[track_caller]
fn check_endpoint(lines: &str, parts: &[&str]) {
    check(&format!("{CHAINS}[[endpoint]]\n{lines}"), parts);
}

#[test]
fn a_seam_without_a_chain() {
    let tools = "[[tools]]\npolicy = 'builtin:allow-all'\n";
    let reads = "[[reads]]\npolicy = 'builtin:allow-all'\n";
    let remedy = "policy = \"builtin:allow-all\"";
    check(
        CHILD,
        &["gatewright.toml", "the tools seam has no policy", remedy],
    );
    check(
        &format!("{reads}{CHILD}"),
        &["the tools seam has no policy", "`[[tools]]`", remedy],
    );
    check(
        &format!("{tools}{CHILD}"),
        &["the reads seam has no policy", "`[[reads]]`", remedy],
    );
}

#[test]
fn a_policy_that_gives_no_answer() {
    for (file, code) in [("traps.wat", "policy_trap"), ("loops.wat", "policy_timeout")] {
        for seam in ["tools", "reads"] {
            let other = if seam == "tools" { "reads" } else { "tools" };
            check(
                &format!(
                    "[[{seam}]]\npolicy = '{file}'\n[[{other}]]\npolicy = 'builtin:allow-all'\n{CHILD}\
                     [audit]\nto = 'audit.jsonl'\n"
                ),
                &[
                    file,
                    &format!("of the {seam} seam gave no answer"),
                    code,
                    "correct it",
                ],
            );
        }
    }
}

#[test]
fn a_policy_that_is_not_there() {
    let missing = CHAINS.replacen("builtin:allow-all", "none.wasm", 1);
    check(
        &format!("{missing}{CHILD}"),
        &["none.wasm", "check that the path is right"],
    );
}

#[test]
fn an_address_that_others_reach() {
    let remedy = "insecure-no-auth = true";
    check_lines(
        "[listen]\naddress = '0.0.0.0:0'",
        &["line 9", "`listen.address`", "other machines reach", remedy],
    );
    check_lines("[listen]\naddress = '[::]:0'", &["`listen.address`", remedy]);
    check_lines("[listen]\naddress = '192.0.2.1:0'", &["`listen.address`", remedy]);
    check_lines(
        "[admin]\naddress = '0.0.0.0:0'",
        &["line 9", "`admin.address`", "other machines reach", remedy],
    );
    // Openly chosen, but then nobody knows what it is called.
    check_lines(
        "[listen]\naddress = '0.0.0.0:0'\ninsecure-no-auth = true",
        &["`listen.address`", "has no name", "`listen.hosts`"],
    );
}

#[test]
fn a_listener_that_cannot_be() {
    check_lines(
        "[listen]\naddress = 'localhost'",
        &["`listen.address`", "`localhost` is no address", "127.0.0.1:8080"],
    );
    check_lines(
        "[listen]\nhosts = ['gate.example.com:80']",
        &["`listen.hosts`", "without a port"],
    );
    check_lines(
        "[listen]\nhosts = ['*.example.com']",
        &["`listen.hosts`", "this is no host"],
    );
    check_lines(
        "[listen]\norigins = ['app.example.com']",
        &["`listen.origins`", "this is no origin"],
    );
    check_lines(
        "[listen]\norigins = ['https://*']",
        &["`listen.origins`", "https://app.example.com"],
    );
    check_lines("[listen]\nport = 80", &["line 9", "unknown field `port`"]);
    check_lines("[listen]\nread-ms = 0", &["`listen.read-ms`"]);
    check_lines("[listen]\nconnections-max = 0", &["`listen.connections-max`"]);
    check_lines(
        "[listen.tls]\ncertificates = 'missing.pem'\nkey = 'missing.pem'",
        &["line 9", "`listen.tls.certificates`", "PEM"],
    );
    check_lines(
        "[listen.tls]\ncertificates = 'none.pem'\nkey = 'none.pem'",
        &["`listen.tls.", "PEM"],
    );
    check_lines("[admin]", &["missing field `address`"]);
}

#[test]
fn an_endpoint_that_cannot_be() {
    check(CHAINS, &["has no `[[endpoint]]`"]);
    check_lines(CHILD, &["`/a`", "the path or the name of another one"]);
    check_lines(
        "[[endpoint]]\npath = '/b'\nname = 'a'\ncommand = ['true']",
        &["`/b`", "the path or the name of another one"],
    );
    for path in ["mcp", "", "/{a}", "/a?b", "/a#b", "/a b", "/*", "//a"] {
        check_endpoint(
            &format!("path = '{path}'\ncommand = ['true']"),
            &["line 6", "`endpoint.path`", "is no path"],
        );
    }
    let either = "either `command = [\"PROGRAM\", …]` or `url = \"http…\"`";
    check_endpoint("path = '/a'", &["line 5", "`endpoint`", either]);
    check_endpoint(
        "path = '/a'\ncommand = ['true']\nurl = 'http://localhost'",
        &["`endpoint`", either],
    );
    check_endpoint(
        "path = '/a'\ncommand = []",
        &["line 7", "`endpoint.command`", "there is no program"],
    );
    check_endpoint(
        "path = '/a'\nurl = 'localhost'",
        &["`endpoint.url`", "give an http or https URL"],
    );
    check_endpoint(
        "path = '/a'\nurl = 'ftp://localhost'",
        &["`endpoint.url`", "neither http nor https"],
    );
    check_endpoint(
        "path = '/a'\nurl = 'http://u:p@localhost'",
        &["`endpoint.url`", "`headers`"],
    );
    check_endpoint(
        "path = '/a'\ncommand = ['true']\nchildren-max = 0",
        &["`endpoint.children-max`"],
    );
    check_endpoint(
        "path = '/a'\ncommand = ['true']\nenv = ['NOT_SET_ANYWHERE']",
        &["NOT_SET_ANYWHERE", "is not set here"],
    );
    check_endpoint("command = ['true']", &["missing field `path`"]);
}

#[test]
fn headers_of_an_upstream_that_cannot_be() {
    let headers = |entry: &str| format!("path = '/a'\nurl = 'http://localhost'\nheaders = [{{ {entry} }}]");
    for (entry, part) in [
        ("name = 'a b', value = 'c'", "is no name of a header"),
        ("name = 'Host', value = 'c'", "is made by the gate itself"),
        (
            "name = 'Mcp-Session-Id', value = 'c'",
            "is made by the gate itself",
        ),
        (
            "name = 'a', value-env = 'NOT_SET_ANYWHERE'",
            "`NOT_SET_ANYWHERE` is not set here",
        ),
        ("name = 'a'", "either `value` or `value-env`"),
        ("name = 'a', value = \"b\\nc\"", "is no value of a header"),
    ] {
        check_endpoint(&headers(entry), &["line 8", "`endpoint.headers`", part]);
    }
}

#[test]
fn a_command_and_the_file_of_the_other() {
    check_lines(
        "[upstream]\nname = 'u'",
        &["line 8", "`upstream`", "this is for `wrap`", "`[[endpoint]]`"],
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("gatewright.toml"),
        format!("{OPEN}{}", endpoint("a")),
    )
    .unwrap();
    let output = gatewright(folder.path())
        .args(["wrap", "--config", "gatewright.toml", "--", "touch", "started"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(Some(2), output.status.code(), "{said}");
    for part in ["line 11", "`endpoint`", "this is for `gatewright serve`"] {
        assert!(said.contains(part), "`{part}` in {said}");
    }
    assert!(!folder.path().join("started").exists());
}

#[test]
fn an_address_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    for (table, what) in [
        ("listen", "the address of clients"),
        ("admin", "the admin address"),
    ] {
        let other = if table == "listen" {
            ""
        } else {
            "[listen]\naddress = '127.0.0.1:0'\n"
        };
        let configuration =
            format!("{CHAINS}{CHILD}{other}[{table}]\naddress = '{address}'\n[audit]\nto = 'off'\n");
        let (ended, said) = Serving::refused(folder.path(), &configuration);
        assert_eq!(Some(1), ended.code(), "{said}");
        for part in [format!("cannot listen on {address}, {what}"), "in use".to_owned()] {
            assert!(said.contains(&part), "`{part}` in {said}");
        }
    }
}

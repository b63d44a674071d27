//! The rows about paths of `tests/cases/paths_urls_sql.json`, each under its own name.

use gatewright_paths::rules::Rules;
use serde_json::Value;

/// Each rule in words, and how this policy is told so.
const RULES: [(&str, &str); 4] = [
    (
        "argument `path` must be an absolute path under /srv/share (lexical, whole segments, case-sensitive; any \
         doubt denies)",
        r#"{"roots":["/srv/share"],"tools":{"read_file":{"arguments":["path"]}}}"#,
    ),
    (
        "every path in argument `paths` must be under /srv/share",
        r#"{"roots":["/srv/share"],"tools":{"read_multiple_files":{"lists":["paths"]}}}"#,
    ),
    (
        "arguments `source` and `destination` must both be under /srv/share",
        r#"{"roots":["/srv/share"],"tools":{"move_file":{"arguments":["source","destination"]}}}"#,
    ),
    (
        "argument `path` anywhere except .env files, .ssh, .aws and /etc (deny list, whole segments)",
        r#"{"roots":["/"],"deny":[".env",".ssh",".aws","/etc"],"tools":{"write_file":{"arguments":["path"]}}}"#,
    ),
];

#[test]
fn every_row() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../../tests/cases/paths_urls_sql.json"))
        .expect("the case file is JSON");
    let (mut allowed, mut denied, mut wrong) = (0, 0, Vec::new());
    for row in rows
        .iter()
        .filter(|row| matches!(row["kind"].as_str(), Some("path" | "path-argument")))
    {
        let name = row["name"].as_str().expect("a row has a name");
        let (_, config) = RULES
            .iter()
            .find(|(rule, _)| row["rule"] == *rule)
            .unwrap_or_else(|| panic!("{name}: this rule has no configuration here: {}", row["rule"]));
        let rules = Rules::parse(config).unwrap_or_else(|error| panic!("{name}: {error}"));
        let arguments = match row["arguments_json"].as_str() {
            Some(exact) => exact.to_owned(),
            None => row["arguments"].to_string(),
        };
        let tool = row["tool"].as_str().expect("a row has a tool");
        let actual = match rules.judge(tool, &arguments) {
            Ok(()) => "allow".to_owned(),
            Err(reason) => format!("deny ({reason})"),
        };
        match row["expect"].as_str() {
            Some("allow") => allowed += 1,
            Some("deny") => denied += 1,
            other => panic!("{name}: the row expects {other:?}"),
        }
        if !row["expect"]
            .as_str()
            .is_some_and(|expected| actual.starts_with(expected))
        {
            wrong.push(format!("{name}: expected {}, got {actual}", row["expect"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A filter that matches nothing would pass as well.
    assert!(
        10 <= allowed && 25 <= denied,
        "{allowed} rows allow and {denied} deny: rows are missing"
    );
}

//! Calls that no policy can have a good word for: tools that no server has, and arguments full of traps.
//!
//! `check` looks at what a policy makes of them, and `fuzz` puts their texts into what a server takes.

/// A call: the tool's name, and its arguments.
pub type GarbageCall = (&'static str, &'static str);

/// Calls of tools that do not exist, with arguments that a careless policy stumbles over.
pub const CALLS: [GarbageCall; 16] = [
    ("gatewright/garbage", "{}"),
    ("", "{}"),
    (
        "__proto__",
        r#"{"__proto__":{"allow":true},"constructor":{"prototype":{}}}"#,
    ),
    (
        "toString",
        r#"{"toString":null,"valueOf":1,"hasOwnProperty":false}"#,
    ),
    ("rm -rf /", r#"{"command":"rm -rf / --no-preserve-root"}"#),
    (
        "DROP TABLE users; --",
        r#"{"sql":"SELECT 1; DROP TABLE users; --"}"#,
    ),
    (
        "../../etc/passwd",
        r#"{"path":"../../../../etc/passwd","paths":["/etc/shadow","C:\\Windows\\System32"]}"#,
    ),
    (
        "fetch\u{202e}",
        r#"{"url":"http://user@169.254.169.254/latest/meta-data/"}"#,
    ),
    (
        "\u{430}dmin",
        r#"{"name":"\u0430dmin\u200b","text":"\u0000\u001b[2J\ufeff"}"#,
    ),
    (
        "null",
        r#"{"path":null,"url":null,"name":null,"query":null,"command":null}"#,
    ),
    (
        "types",
        r#"{"path":{"a":[]},"url":[[]],"name":false,"query":0,"command":{"":""}}"#,
    ),
    (
        "numbers",
        r#"{"amount":9007199254740993,"limit":-0,"count":1e308,"id":123456789012345678901234567890.5e-30}"#,
    ),
    (
        "nested",
        r#"{"body":"{\"path\":\"/etc/passwd\",\"body\":\"{\\\"path\\\":\\\"/etc/shadow\\\"}\"}"}"#,
    ),
    (
        "deep",
        r#"{"a":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[{"path":"/etc/passwd"}]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}"#,
    ),
    (
        "case",
        r#"{"Path":"/etc/passwd","PATH":"/etc/passwd","pa\u0074h":"/etc/passwd"}"#,
    ),
    (
        "empty",
        r#"{"":"","path":"","url":"","name":"","paths":[],"options":{}}"#,
    ),
];

/// Texts that do harm where they are taken for something else.
pub const TEXTS: [&str; 24] = [
    "",
    "/etc/passwd",
    "../../../../etc/passwd",
    "/srv/share/../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%252e%252e/etc/passwd",
    "//etc/passwd",
    "C:\\Windows\\System32\\config\\SAM",
    "\\\\evil.example\\share",
    "file:///etc/passwd",
    "/proc/self/environ",
    ".env",
    ".ENV. ",
    "http://169.254.169.254/latest/meta-data/",
    "http://user@evil.example\\@good.example/",
    "http://[::ffff:127.0.0.1]/",
    "http://0x7f.1/",
    "javascript:alert(1)",
    "$(rm -rf /)",
    "; cat /etc/passwd",
    "1; DROP TABLE users; --",
    "' OR '1'='1",
    "{\"path\":\"/etc/passwd\"}",
    "a\u{202e}\u{200b}\u{0}\u{1b}[2J",
];

//! Guests whose answer is too long, or none.

use super::{Answer, Case};
use crate::support::policies::Guest;

async fn answers(case: &Case, memory_pages: usize, authorize: &str) -> Answer {
    let memory = format!(r#"(memory (export "memory") {memory_pages})"#);
    let guest = Guest {
        memory: &memory,
        authorize,
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    case.judges(&policy).await;
    case.judges(&policy).await
}

pub(super) async fn huge_reason(case: &Case) {
    answers(case, 200, "(call $deny (i32.const 65536) (i32.const 10485760))").await;
    // As much as there is, and not even text.
    let body = "(memory.fill (i32.const 65536) (i32.const 0xff) (i32.const 67043328))
        (call $deny (i32.const 65536) (i32.const 67043328))";
    answers(case, 1024, body).await;
}

pub(super) async fn at_the_limit(case: &Case) {
    let body = "(memory.fill (i32.const 65536) (i32.const 0x61) (i32.const 65536))
        (call $deny (i32.const 65536) (i32.const 65536))";
    let answer = answers(case, 3, body).await;
    assert_eq!("a".repeat(65536), answer.text());
}

pub(super) async fn over_the_limit(case: &Case) {
    answers(case, 3, "(call $deny (i32.const 65536) (i32.const 65537))").await;
    answers(case, 3, "(call $ask (i32.const 65536) (i32.const 65537))").await;
}

pub(super) async fn unknown_decision(case: &Case) {
    answers(
        case,
        2,
        "(call $answer (i32.const 7) (i32.const 0) (i32.const 0))",
    )
    .await;
    answers(
        case,
        2,
        "(call $answer (i32.const 3) (i32.const 0) (i32.const 0))",
    )
    .await;
}

pub(super) async fn length_overflows(case: &Case) {
    answers(case, 2, "(call $deny (i32.const -16) (i32.const -16))").await;
    answers(case, 2, "(call $deny (i32.const 131064) (i32.const 16))").await;
    // The area of the answer itself.
    answers(case, 2, "(i32.const -16)").await;
    answers(case, 2, "(i32.const 3)").await;
}

pub(super) async fn huge_prompt(case: &Case) {
    let body = "(memory.fill (i32.const 65536) (i32.const 0x1b) (i32.const 10485760))
        (call $ask (i32.const 65536) (i32.const 10485760))";
    answers(case, 200, body).await;
}

pub(super) async fn controls(case: &Case) {
    let guest = Guest {
        items: r#"(data (i32.const 1024) "a\00b\1b[31m\r\n")"#,
        authorize: "(call $deny (i32.const 1024) (i32.const 10))",
        ..Guest::default()
    };
    let answer = case.judges(&case.load(guest.component())).await;
    assert_eq!("a\0b\u{1b}[31m\r\n", answer.text());
}

/// No case of the file: a text that is not UTF-8, and a fault after the answer (ruling G2).
#[tokio::test]
async fn an_answer_that_is_taken_back() {
    let engine = super::engine();
    let load = |guest: Guest<'_>| {
        let settings = crate::support::policies::settings("odd", guest.component());
        gatewright::policy::load::Policy::load(&engine, settings).unwrap()
    };
    let not_text = load(Guest {
        items: r#"(data (i32.const 1024) "\c3\28")"#,
        authorize: "(call $deny (i32.const 1024) (i32.const 2))",
        ..Guest::default()
    });
    assert_eq!("policy_output", Answer::of(&not_text, "x").await.code());
    let trap = load(Guest {
        post_return: "unreachable",
        ..Guest::default()
    });
    assert_eq!("policy_trap", Answer::of(&trap, "x").await.code());
    let endless = load(Guest {
        post_return: "(loop $l (br $l))",
        ..Guest::default()
    });
    assert_eq!("policy_timeout", Answer::of(&endless, "x").await.code());
    let quiet = load(Guest {
        items: r#"(data (i32.const 1024) "no")"#,
        authorize: "(call $deny (i32.const 1024) (i32.const 2))",
        // Wipes the text, as an allocator may: the host must have taken it by then.
        post_return: "(memory.fill (i32.const 0) (i32.const 0) (i32.const 65536))",
        ..Guest::default()
    });
    assert_eq!("no", Answer::of(&quiet, "x").await.text());
}

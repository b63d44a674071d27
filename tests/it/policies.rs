//! Small policies through the public contract: load, decide, combine.

use std::time::Duration;

use gatewright::decision::{Code, Conclusion, Decision, Fault, Mode, Seam};
use gatewright::policy::bench::{self, Effort};
use gatewright::policy::chain::Chain;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{PolicySettings, Source};
use gatewright::policy::load::Policy;
use gatewright::seam::{Authorizer as _, Call, Context};

use crate::support::policies::{Does, Guest, settings, wat_policy};

/// A call of the tool `name` without arguments, by a client on stdio.
pub(crate) fn call(name: &str) -> Call<'_> {
    Call {
        seam: Seam::Tools,
        name,
        args_json: "{}",
        context: Context {
            server: "notes",
            session: "s1",
            transport: "stdio",
            protocol_version: "2025-11-25",
            client_json: "{}",
            principal: None,
            claims_json: "{}",
            tool_json: "",
            extra_json: "{}",
            now_unix_ms: 1_800_000_000_000,
        },
    }
}

#[tokio::test(start_paused = true)]
async fn each_simple_policy_decides() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let decide = async |does: Does<'_>, name: &str| {
        let policy = Policy::load(&engine, settings("small", wat_policy(does))).unwrap();
        policy.decide(&call(name)).await.0.map_err(|(fault, _)| fault)
    };
    assert_eq!(Ok(Decision::Allow), decide(Does::Allow, "x").await);
    assert_eq!(
        Ok(Decision::Ask("Süß?".to_owned())),
        decide(Does::Ask("Süß?"), "x").await
    );
    assert_eq!(
        Ok(Decision::Deny("no\n\"".to_owned())),
        decide(Does::Deny("no\n\""), "x").await
    );
    assert_eq!(Err(Fault::Trap), decide(Does::Trap, "x").await);
    assert_eq!(Err(Fault::Timeout), decide(Does::Loop, "x").await);
    let list = Does::AllowOnly(&["read", "list"]);
    assert_eq!(Ok(Decision::Allow), decide(list, "read").await);
    assert_eq!(Ok(Decision::Allow), decide(list, "list").await);
    let not_listed = Ok(Decision::Deny("not on the list".to_owned()));
    assert_eq!(not_listed, decide(list, "lisp").await);
    assert_eq!(not_listed, decide(list, "rea").await);
    assert_eq!(not_listed, decide(list, "reads").await);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_real_policies_concludes() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let load = |does| Policy::load(&engine, settings("small", wat_policy(does))).unwrap();
    let chain = Chain::new(vec![
        load(Does::Allow),
        load(Does::Ask("sure?")),
        load(Does::Allow),
    ]);
    let verdict = chain.judge(&call("x")).await;
    assert_eq!(Conclusion::Ask(vec!["sure?".to_owned()]), verdict.conclusion);
    assert_eq!(3, verdict.policies.len());
    assert_eq!(chain.revision(), verdict.revision);

    let chain = Chain::new(vec![
        load(Does::Ask("sure?")),
        load(Does::Trap),
        load(Does::Allow),
    ]);
    let verdict = chain.judge(&call("x")).await;
    let refused = Conclusion::Deny {
        code: Code::PolicyTrap,
        detail: Code::PolicyTrap.fixed_detail().to_owned(),
    };
    assert_eq!((refused, 2), (verdict.conclusion, verdict.policies.len()));
}

#[test]
fn the_revision_covers_everything_that_decides() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let revision = |change: &dyn Fn(&mut PolicySettings)| {
        let mut settings = settings("small", wat_policy(Does::Allow));
        change(&mut settings);
        Chain::new(vec![Policy::load(&engine, settings).unwrap()]).revision()
    };
    let first = revision(&|_| {});
    assert_eq!(first, revision(&|settings| settings.name = "renamed".to_owned()));
    let granted = revision(&|settings| settings.grants.log = true);
    assert_eq!(first, granted, "a policy cannot tell whether it is logged");
    let variable = |value: &str| [("A".to_owned(), value.to_owned())].into_iter().collect();
    assert_ne!(
        revision(&|settings| settings.grants.env = variable("1")),
        revision(&|settings| settings.grants.env = variable("2"))
    );
    let changes: [&dyn Fn(&mut PolicySettings); 8] = [
        &|settings| {
            let bytes = wat_policy(Does::Ask("sure?")).into_bytes().into();
            settings.source = Source::Bytes {
                name: "other".to_owned(),
                bytes,
            };
        },
        &|settings| settings.mode = Mode::Observe,
        &|settings| settings.grants.clock = true,
        &|settings| settings.grants.random = true,
        &|settings| settings.grants.env = variable("1"),
        &|settings| settings.limits.deadline = Duration::from_millis(51),
        &|settings| settings.limits.memory_bytes_max -= 1,
        &|settings| settings.limits.output_bytes_max -= 1,
    ];
    for (at, change) in changes.iter().enumerate() {
        assert_ne!(first, revision(change), "change {at}");
    }
}

#[test]
fn a_policy_is_measured() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let policy = Policy::load(&engine, settings("small", wat_policy(Does::Ask("sure?")))).unwrap();
    let effort = Effort {
        threads: 2.try_into().unwrap(),
        calls: 50.try_into().unwrap(),
    };
    let report = bench::run(&policy, &call("x"), effort).unwrap();
    assert_eq!(Ok(Decision::Ask("sure?".to_owned())), report.answer);
    assert_eq!((100, 0), (report.calls(), report.others));
    assert!(Duration::ZERO < report.within(0) && report.within(500) <= report.within(1000));
    assert!(0.0 < report.per_second);
}

#[tokio::test]
async fn the_context_arrives() {
    // Denies with the member of the context at this offset of the parameters.
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let read = async |offset: usize| {
        let body = format!(
            "(call $deny (i32.load offset={offset} (local.get $in)) (i32.load offset={} (local.get $in)))",
            offset + 4
        );
        let guest = Guest {
            authorize: &body,
            ..Guest::default()
        };
        let policy = Policy::load(&engine, settings("reader", guest.component())).unwrap();
        let context = Context {
            server: "the server",
            session: "the session",
            transport: "http",
            protocol_version: "2026-07-28",
            client_json: r#"{"name":"client"}"#,
            principal: Some("ada"),
            claims_json: r#"{"sub":"ada"}"#,
            tool_json: r#"{"name":"x"}"#,
            extra_json: r#"{"task":{}}"#,
            now_unix_ms: 1_800_000_000_000,
        };
        let call = Call {
            seam: Seam::Reads,
            name: "é",
            args_json: r#"{"a":1.0}"#,
            context,
        };
        match policy.decide(&call).await.0 {
            Ok(Decision::Deny(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!("é", read(0).await);
    assert_eq!(r#"{"a":1.0}"#, read(8).await);
    assert_eq!("reads", read(16).await);
    assert_eq!("the server", read(24).await);
    assert_eq!("the session", read(32).await);
    assert_eq!("http", read(40).await);
    assert_eq!("2026-07-28", read(48).await);
    assert_eq!(r#"{"name":"client"}"#, read(56).await);
    assert_eq!("ada", read(68).await);
    assert_eq!(r#"{"sub":"ada"}"#, read(76).await);
    assert_eq!(r#"{"name":"x"}"#, read(84).await);
    assert_eq!(r#"{"task":{}}"#, read(92).await);
}

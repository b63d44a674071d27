//! Small policies through the public contract: load, decide, combine.

use gatewright::decision::{Code, Conclusion, Decision, Fault, Seam};
use gatewright::policy::chain::Chain;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::load::Policy;
use gatewright::seam::{Authorizer as _, Call, Context};

use crate::support::policies::{Does, settings, wat_policy};

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
        detail: "a policy failed".to_owned(),
    };
    assert_eq!((refused, 2), (verdict.conclusion, verdict.policies.len()));
}
